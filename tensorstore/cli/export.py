"""`tensortrial export RUN… TARGET`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import click

from ..exports import export as export_runs
from ..exports.tables import DEFAULT, SCHEMAS
from .options import counted, options_of, storage_option, tell_left_out


class _Since(click.ParamType[int | datetime]):
    name = "STEP|TIME"

    def convert(
        self, value: str | int | datetime, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | datetime:
        if not isinstance(value, str):
            return value
        try:
            return int(value) if value.isdecimal() else _in_utc(datetime.fromisoformat(value))
        except ValueError:
            self.fail(f"{value!r} is neither a global step nor a time such as 2026-01-31T12:00", param, ctx)


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.argument("target")
@click.option(
    "--table",
    "tables",
    multiple=True,
    help=f"Export this table only: {', '.join(SCHEMAS)}. May be given several times. "
    f"[default: all but {' and '.join(table for table in SCHEMAS if table not in DEFAULT)}]",
)
@click.option(
    "--since", type=_Since(), help="Leave out steps before this global step, or saved before this time (UTC)."
)
@click.option(
    "--target-option",
    "target_options",
    multiple=True,
    metavar="KEY=VALUE",
    help="For the target, e.g. schema=runs. May be given several times.",
)
@click.option("--progress/--no-progress", default=True, help="Show a progress bar. [default: if tqdm is installed]")
@storage_option
def export(
    runs: Sequence[str],
    target: str,
    tables: Sequence[str],
    since: int | datetime | None,
    target_options: Sequence[str],
    progress: bool,
    storage_options: tuple[str, ...],
) -> None:
    """Copy runs to where other data lies.

    TARGET is duckdb:FILE, postgresql://HOST/DATABASE, parquet:FOLDER, csv:FOLDER, or another of docs/warehouse.md. Put
    no password into it, because others on the machine can see the command line: PGPASSWORD and ~/.pgpass are read.

    Exporting again moves only what is new, also after an interruption. RUN may be several runs, a folder that has runs
    below it, or a quoted pattern.

    \b
    tensortrial export runs duckdb:warehouse.duckdb
    tensortrial export 'runs/lr=*' csv:exported --table scalars --since 2026-01-31T12:00
    """
    done = export_runs(
        runs,
        target,
        tables=tables or None,
        since=since,
        storage_options=options_of(storage_options),
        progress=progress,
        **(options_of(target_options, "--target-option") or {}),
    )
    tell_left_out(done.damaged)
    for table, count in done.rows.items():
        click.echo(f"{table}: {counted(count, 'row')}")


def _in_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
