"""`tensortrial sql RUN… QUERY`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import click

from ...errors import NotARun, RunNotFound
from ...read.opening import create_trial
from ...read.trial import Trial
from ..argument_order import SQL, runs_and_last
from ..completion import complete_run
from ..options import opened_runs, parse_options, storage_option, timeout_option
from ..rows import RowOutput, output_options


@click.command()
@click.argument("arguments", metavar="RUN... QUERY", nargs=-1, required=True, shell_complete=complete_run)
@output_options
@timeout_option
@storage_option
def sql(arguments: tuple[str, ...], rows: RowOutput, timeout: float | None, storage_options: tuple[str, ...]) -> None:
    """Run one SELECT on the views of one or several runs.

    `SHOW TABLES` lists the views, such as tensors, scalars and reductions. `DESCRIBE tensors` lists the columns of one.
    RUN may be several runs, a folder with runs below it, or a quoted pattern: the views then have the column run, and
    the view runs is added.

    \b
    tensortrial sql runs/digits "SELECT name, last, max FROM run_summary"
    tensortrial sql 'runs/lr=*' "FROM runs" --format csv --output runs.csv
    """
    runs, query = runs_and_last(arguments, "sql", "QUERY", SQL)
    trial = _single_run(runs, storage_options)
    if trial is not None:
        rows.write(trial.sql(query, timeout=timeout))
        return
    with opened_runs(runs, storage_options) as opened:
        rows.write(opened.sql(query, timeout=timeout))


def _single_run(runs: Sequence[str], storage_options: Sequence[str]) -> Trial | None:
    """Return the only run; None for several runs, a folder of runs or a pattern."""
    if len(runs) == 1:
        with suppress(RunNotFound, NotARun):
            return create_trial(runs[0], storage_options=parse_options(storage_options))
    return None
