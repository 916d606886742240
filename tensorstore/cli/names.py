"""`tensortrial names RUN`."""

from __future__ import annotations

import click

from ..mode import ModeKeys
from .options import mode_option, open_trial, run_argument, storage_option


@click.command()
@run_argument
@click.option("--step", type=int, help="Only tensors saved at this step.")
@mode_option
@click.option("--regex", multiple=True, help="Only names in which this is found. May be given several times.")
@click.option("--collection", help="Only tensors of this collection.")
@storage_option
def names(
    run: str,
    step: int | None,
    mode: str,
    regex: tuple[str, ...],
    collection: str | None,
    storage_options: tuple[str, ...],
) -> None:
    """The names of saved tensors, one a line."""
    trial = open_trial(run, storage_options)
    found = trial.tensor_names(step=step, mode=ModeKeys[mode], regex=list(regex) or None, collection=collection)
    for name in found:
        click.echo(name)
