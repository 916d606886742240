"""`tensortrial export RUN… TARGET`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import click

from ...exports import export as export_runs
from ...exports.tables import DEFAULT, SCHEMAS
from ...visible import counted
from ..argument_order import TARGET, runs_and_last
from ..completion import complete_run
from ..console import print_line
from ..options import parse_options, progress_option, report_skipped, storage_option

_INCOMPLETE = 1


class _Since(click.ParamType[int | datetime]):
    name = "STEP|TIME"

    def convert(
        self, value: str | int | datetime, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | datetime:
        if not isinstance(value, str):
            return value
        try:
            return int(value) if value.isdecimal() else datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"must be a global step or a time such as 2026-01-31T12:00, got {value!r}", param, ctx)


@click.command()
@click.argument("arguments", metavar="RUN... TARGET", nargs=-1, required=True, shell_complete=complete_run)
@click.option(
    "--table",
    "tables",
    multiple=True,
    help=f"Export only this table: {', '.join(SCHEMAS)}. Can be repeated. "
    f"[default: all but {' and '.join(table for table in SCHEMAS if table not in DEFAULT)}]",
)
@click.option("--since", type=_Since(), help="Skip steps before this global step, or saved before this time (UTC).")
@click.option(
    "--target-option",
    "target_options",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the target, e.g. schema=runs. Can be repeated.",
)
@click.option(
    "--prune", is_flag=True, help="Delete from the target the runs that are not among RUN, such as those deleted since."
)
@progress_option
@storage_option
def export(
    arguments: Sequence[str],
    tables: Sequence[str],
    since: int | datetime | None,
    target_options: Sequence[str],
    prune: bool,
    progress: bool,
    storage_options: tuple[str, ...],
) -> None:
    """Copy runs into a database, a data lake or files.

    TARGET is duckdb:FILE, postgresql://HOST/DATABASE, parquet:FOLDER, csv:FOLDER, or another target of
    docs/warehouse.md. Do not write a password into it, because others on the machine can see the command line: set
    PGPASSWORD or use ~/.pgpass.

    Another export copies only new rows, also after an interruption. RUN is a run, a folder with runs below it, or a
    quoted pattern; several are allowed.

    The exit status is 1 if a run or a file could not be read. The rest is exported.

    \b
    tensortrial export runs duckdb:warehouse.duckdb
    tensortrial export 'runs/*' csv:out --table scalars --since 2026-01-31T12:00
    """
    runs, target = runs_and_last(arguments, "export", "TARGET", TARGET)
    done = export_runs(
        runs,
        target,
        tables=tables or None,
        since=since,
        storage_options=parse_options(storage_options),
        progress=progress,
        prune=prune,
        **(parse_options(target_options, "--target-option") or {}),
    )
    report_skipped(done.damaged)
    for table, count in done.rows.items():
        click.echo(f"{table}: {counted(count, 'row')}")
    for run in done.pruned:
        print_line(f"pruned: {run}")
    if done.damaged:
        raise SystemExit(_INCOMPLETE)
