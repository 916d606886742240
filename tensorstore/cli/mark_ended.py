"""`tensortrial mark-ended RUN`."""

from __future__ import annotations

import click

from .options import open_trial, run_argument, storage_option


@click.command("mark-ended")
@run_argument
@storage_option
def mark_ended(run: str, storage_options: tuple[str, ...]) -> None:
    """Say that a job that crashed will write no more, so that nobody waits for it."""
    open_trial(run, storage_options).mark_ended()
