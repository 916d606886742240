"""`tensortrial compare A [B]`."""

from __future__ import annotations

import json
from typing import Any

import click

from ...comparison import Comparison, Difference
from ...comparison import compare as compare_runs
from ...visible import in_a_line
from ..completion import complete_run
from ..console import console_for, print_line, print_table, working
from ..options import error_status, open_trial, parse_options, storage_option
from ..rows import RowOutput, output_options

_SAME, _DIFFERENT, _ERROR = 0, 1, 2
_COLUMNS = ["step", "order", "name", "worker", "difference"]
_WITHOUT_WORKER = [column for column in _COLUMNS if column != "worker"]
_SHOWN = 20


@click.command(context_settings={"max_content_width": 100})
@click.argument("a", shell_complete=complete_run)
@click.argument("b", required=False, shell_complete=complete_run)
@click.option("--rtol", type=float, help="Elements agree if |a-b| <= atol + rtol*|b|.")
@click.option("--atol", type=float, help="See --rtol.")
@click.option("--ulps", type=int, help="Floats also agree if they are at most this many representable numbers apart.")
@click.option(
    "--map", "renamed", multiple=True, metavar="OLD=NEW", help="Replace a regular expression in the names of A."
)
@click.option("--regex", multiple=True, help="Compare only tensors whose names match this regex. Can be repeated.")
@click.option("--mode", help="Compare only the steps of this mode.")
@click.option("--workers", nargs=2, metavar="WORKER_A WORKER_B", help="Compare two workers of any names.")
@click.option("--steps", nargs=2, type=int, metavar="STEP_A STEP_B", help="Compare two global steps.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole answer as one JSON object.")
@click.option("--all", "shows_all", is_flag=True, help="Print all tensors that differ, not only the first 20.")
@output_options
@storage_option
@error_status(_ERROR)
def compare(
    a: str,
    b: str | None,
    renamed: tuple[str, ...],
    regex: tuple[str, ...],
    as_json: bool,
    shows_all: bool,
    rows: RowOutput,
    storage_options: tuple[str, ...],
    **options: Any,
) -> None:
    """Find where two runs first differ.

    Compares bit by bit, or within --rtol, --atol and --ulps. Without B, two --workers or two --steps of A are compared.

    The exit status is 0 if nothing differs, 1 if something does, and 2 if a run cannot be read or nothing was compared.

    \b
    tensortrial compare runs/good runs/bad
    tensortrial compare runs/fp32 runs/bf16 --rtol 1e-2 --map '^module[.]='
    tensortrial compare runs/ddp --workers worker_0 worker_1
    """
    trials = [open_trial(run, storage_options) for run in (a, b) if run is not None]
    with working("comparing"):
        found = compare_runs(*trials, map=parse_options(renamed, "--map"), regex=regex or None, **options)
    if as_json:
        click.echo(json.dumps(found.to_json(), ensure_ascii=False))
    elif rows.is_default:
        _print(found, None if shows_all else _SHOWN)
    else:
        rows.write_table(found.to_arrow_table())
    raise SystemExit(_status(found))


def _status(found: Comparison) -> int:
    if found.same:
        return _SAME
    differs = found.first is not None or (found.rows and (found.only_a or found.only_b))
    return _DIFFERENT if differs else _ERROR


def _cells(found: Difference, with_mode: bool) -> dict[str, str]:
    order = "" if found.order is None else str(found.order)
    worker = found.worker or found.worker_b or ""
    step = f"{found.mode} {found.step}" if with_mode else str(found.step)
    return dict(zip(_COLUMNS, (step, order, in_a_line(found.label), worker, str(found)), strict=True))


def _print(found: Comparison, most: int | None) -> None:
    for text in str(found).splitlines():
        print_line(text)
    shown = found.differences[:most]
    if shown:
        # The table must fit into 80 columns.
        columns = _COLUMNS if len({each.worker or each.worker_b for each in shown}) > 1 else _WITHOUT_WORKER
        with_mode = len({each.mode for each in shown}) > 1
        cells = [_cells(each, with_mode) for each in shown]
        print_table(console_for(), columns, [[each[column] for column in columns] for each in cells])
    if len(found.differences) > len(shown):
        print_line(f"and {len(found.differences) - len(shown):,} more tensors; --all prints them")
