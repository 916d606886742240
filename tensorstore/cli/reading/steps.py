"""`tensortrial steps RUN`."""

from __future__ import annotations

import json

import click

from ...mode import ModeKeys
from ..options import mode_option, open_trial, run_argument, storage_option
from ..ranges import ranges


@click.command()
@run_argument
@mode_option
@click.option("--all", "incomplete", is_flag=True, help="Include steps that some worker has not written yet.")
@click.option("--json", "as_json", is_flag=True, help="Print the steps as one JSON array.")
@storage_option
def steps(run: str, mode: str, incomplete: bool, as_json: bool, storage_options: tuple[str, ...]) -> None:
    """List the saved steps as ranges: `0-90:10` means 0, 10, … 90.

    \b
    tensortrial steps runs/digits --mode train
    """
    found = open_trial(run, storage_options).steps(ModeKeys[mode], show_incomplete_steps=incomplete)
    if as_json:
        click.echo(json.dumps(found))
    for text in () if as_json else ranges(found):
        click.echo(text)
    if not found:
        click.echo(
            f"no step of mode {ModeKeys[mode].name} is complete; `tensortrial info RUN` lists the steps of all modes",
            err=True,
        )
