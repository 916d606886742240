"""`tensortrial sql RUN… QUERY`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ..errors import NotARun, RunNotFound, TensorTrialError
from ..runs import open_runs
from .options import open_trial, options_of, storage_option
from .rows import format_option, output_option, write_rows


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.argument("query")
@format_option
@output_option
@storage_option
def sql(runs: tuple[str, ...], query: str, form: str, output: str | None, storage_options: tuple[str, ...]) -> None:
    """Run one SELECT on the views of a run, or of many.

    The views are tensors, reductions, scalars, steps, collections, findings and tensor_values; `SELECT * FROM
    reductions LIMIT 5` shows what is in one, `DESCRIBE tensors` its columns. RUN may be several runs, a folder that
    has runs below it, or a quoted pattern: the views then have the column run, and there is the view runs.
    """
    write_rows(_ask(runs, query, storage_options), form, output)


def _ask(places: Sequence[str], query: str, storage_options: Sequence[str]) -> Any:
    """The relation that answers a query on the one run, or on those that are found."""
    if len(places) == 1:
        try:
            return open_trial(places[0], storage_options).sql(query)
        except (RunNotFound, NotARun) as exc:
            alone: TensorTrialError = exc
    try:
        runs = open_runs(places, storage_options=options_of(storage_options))
    except RunNotFound as exc:
        raise alone if len(places) == 1 else exc from None
    relation = runs.sql(query)
    for error in runs.damaged.values():
        click.echo(f"left out: {error}", err=True)
    return relation
