"""`tensortrial ls PLACE…`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from ...maintenance.notes import notes_of
from ...parallel import in_threads
from ...read.runs import Runs
from ...visible import sized
from ..completion import complete_run
from ..console import console_for, print_table
from ..options import opened_runs, storage_option
from ..rows import RowOutput, output_options

_COLUMNS = ("run", "state", "steps", "file size", "started", "tags")
_PARALLEL = 16
_QUERY = """
    select run, path, started_at, framework, workers, steps, tensor_bytes, file_bytes, metadata
    from runs order by started_at, run
"""


@click.command("ls")
@click.argument("places", metavar="[PLACE]...", nargs=-1, shell_complete=complete_run)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each run, on a line.")
@output_options
@storage_option
def ls(places: tuple[str, ...], as_json: bool, rows: RowOutput, storage_options: tuple[str, ...]) -> None:
    """List the runs in a folder, with state, steps, size and tags.

    PLACE is a folder with runs below it, a run, or a quoted pattern; several are allowed, and the current folder is
    the default. Steps are those that were saved, "of" those that the job has begun. The size is that of the files;
    --json also has `tensor_bytes`, the size of all saved tensors in memory, the framework, the workers, the metadata,
    and the notes of `tensortrial note`.

    With --format or --output, the rows have a column for each key of the metadata, and for the last, least and greatest
    value of each scalar.

    \b
    tensortrial ls runs
    tensortrial ls 's3://bucket/project/lr=*' --json
    tensortrial ls runs --format csv --output runs.csv
    """
    if as_json and not rows.is_default:
        raise click.UsageError("--json prints other columns than --format and --output; pass one of them")
    with opened_runs(places or (".",), storage_options) as opened:
        if as_json:
            for row in _rows(opened):
                click.echo(json.dumps(row, ensure_ascii=False))
        elif rows.is_default:
            _print(list(_rows(opened)))
        else:
            from ...exports import run_table  # on first use: it imports all exports

            rows.write_table(run_table(opened))


def _print(rows: list[dict[str, Any]]) -> None:
    columns = _COLUMNS if any(row["tags"] for row in rows) else _COLUMNS[:-1]
    print_table(console_for(), columns, [_cells(row)[: len(columns)] for row in rows])


def _rows(opened: Runs) -> Iterator[dict[str, Any]]:
    ended = {run.name: run.snapshot.workers.job_ended for run in opened.all}
    begun = {run.name: run.snapshot.steps_begun for run in opened.all}
    noted = dict(in_threads(lambda run: (run.name, notes_of(run.storage)), opened.all, _PARALLEL))
    for run, path, started_at, framework, workers, steps, tensor_bytes, file_bytes, metadata in opened.sql(
        _QUERY
    ).fetchall():
        yield {
            "run": run,
            "path": path,
            "state": "ended" if ended[run] else "running",
            "steps": steps,
            "steps_begun": begun[run],
            "tensor_bytes": tensor_bytes,
            "file_bytes": file_bytes,
            "started_at": started_at.isoformat(timespec="seconds"),
            "framework": framework,
            "workers": workers,
            "metadata": json.loads(metadata),
            **noted[run],
        }


def _cells(row: dict[str, Any]) -> list[str]:
    # A line must fit into 80 columns, so the framework is in the JSON only, and times have no seconds.
    return [
        row["run"],
        row["state"],
        f"{row['steps']:,} of {row['steps_begun']:,}" if row["steps_begun"] > row["steps"] else f"{row['steps']:,}",
        sized(row["file_bytes"]),
        row["started_at"][:16].replace("T", " "),
        ", ".join(row["tags"]),
    ]
