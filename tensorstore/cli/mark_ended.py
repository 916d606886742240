"""`tensortrial mark-ended RUN`."""

from __future__ import annotations

import click

from .options import open_trial, run_argument, storage_option


@click.command("mark-ended")
@run_argument
@storage_option
def mark_ended(run: str, storage_options: tuple[str, ...]) -> None:
    """Say that a crashed job will write no more.

    Then nobody waits for it. A run that has ended stays as it is.
    """
    open_trial(run, storage_options).mark_ended()
