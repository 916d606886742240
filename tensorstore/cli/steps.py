"""`tensortrial steps RUN`."""

from __future__ import annotations

import click

from ..mode import ModeKeys
from .options import mode_option, open_trial, run_argument, storage_option
from .ranges import ranges


@click.command()
@run_argument
@mode_option
@click.option("--all", "incomplete", is_flag=True, help="Include steps that some worker has not written yet.")
@storage_option
def steps(run: str, mode: str, incomplete: bool, storage_options: tuple[str, ...]) -> None:
    """List the saved steps as ranges: `0-90:10` means 0, 10, … 90."""
    found = open_trial(run, storage_options).steps(ModeKeys[mode], show_incomplete_steps=incomplete)
    for text in ranges(found):
        click.echo(text)
    if not found:
        click.echo(
            f"no step of mode {ModeKeys[mode].name} is complete; `tensortrial info RUN` lists the steps of all modes",
            err=True,
        )
