"""`tensortrial sql RUN… QUERY`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click

from ..errors import NotARun, RunNotFound
from ..read.runs import open_runs
from ..read.trial import create_trial
from .options import options_of, storage_option, tell_left_out, timeout_option
from .rows import format_option, guard_option, output_option, write_rows


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.argument("query")
@format_option
@output_option
@guard_option
@timeout_option
@storage_option
def sql(
    runs: tuple[str, ...],
    query: str,
    form: str,
    output: str | None,
    guard_formulas: bool,
    timeout: float | None,
    storage_options: tuple[str, ...],
) -> None:
    """Run one SELECT on the views of a run, or of many.

    The views are tensors, reductions, scalars, steps, collections, findings and tensor_values; `SELECT * FROM
    reductions LIMIT 5` shows what is in one, `DESCRIBE tensors` its columns. RUN may be several runs, a folder that
    has runs below it, or a quoted pattern: the views then have the column run, and there is the view runs.

    \b
    tensortrial sql runs/digits "SELECT name, max(value) FROM scalars GROUP BY name"
    tensortrial sql 'runs/lr=*' "FROM runs" --format csv --output runs.csv
    """
    write_rows(_ask(runs, query, timeout, storage_options), form, output, guard_formulas)


def _ask(places: Sequence[str], query: str, timeout: float | None, storage_options: Sequence[str]) -> Any:
    """The rows that answer a query on the one run, or on those that are found."""
    options = options_of(storage_options)
    if len(places) == 1:
        with suppress(RunNotFound, NotARun):
            return create_trial(places[0], storage_options=options).sql(query, timeout=timeout)
    runs = open_runs(places, storage_options=options)
    relation = runs.sql(query, timeout=timeout)
    tell_left_out(runs.damaged)
    return relation
