"""`tensortrial verify RUN…`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import click

from ...errors import RunError, StorageError
from ...maintenance import verification
from ...read.verify import Damage, Verification
from ...visible import counted, listed, sized
from ..console import print_line
from ..options import (
    error_status,
    parse_options,
    progress_option,
    runs_argument,
    runs_below_hint,
    storage_option,
)
from ..ranges import ranges

_DAMAGED, _USAGE = 1, 2
_MOST = 8
_UNNAMED = {
    "chunk": "raw values that no index file names",
    "temporary": "temporary files",
    "other": "files of other programs",
}


@click.command()
@runs_argument
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each run, on a line.")
@progress_option
@storage_option
@error_status(_USAGE)
def verify(runs: tuple[str, ...], as_json: bool, progress: bool, storage_options: tuple[str, ...]) -> None:
    """Read every byte of runs, and print which files are damaged.

    Also prints unfinished steps, superseded files that are not deleted yet, and files that no step needs. A run can be
    verified while it is written. Nothing is changed.

    The exit status is 0 if every run is whole, 1 if a file is damaged or missing, and 2 if there is no run.

    \b
    tensortrial verify runs/digits
    tensortrial verify runs/* --json
    """
    status = 0
    for run in runs:
        try:
            with runs_below_hint(run, storage_options):
                report = verification.verify(
                    run, storage_options=parse_options(storage_options), progress=progress and not as_json
                )
        except (RunError, StorageError) as exc:
            print_line(f"Error: {exc}", err=True)
            status = _USAGE
            continue
        if as_json:
            click.echo(json.dumps(report.to_json()))
        else:
            for text in _lines(report):
                print_line(text)
        if not report.is_whole:
            status = max(status, _DAMAGED)
    raise SystemExit(status)


def _lines(report: Verification) -> Iterator[str]:
    yield str(report)
    for damage in report.damaged:
        yield from _damage_lines("damaged", damage)
    for damage in report.lost:
        yield from _damage_lines("lost", damage)
    for late in report.unfinished:
        yield f"  unfinished: {late.worker}: {late.reason}{_steps(late.steps)}"
    if report.superseded:
        count = counted(len(report.superseded), "file")
        yield f"  superseded and not yet deleted: {count}, such as {report.superseded[0]}"
    for kind, what in _UNNAMED.items():
        found = [each for each in report.unnamed if each.kind == kind]
        if found:
            size = sum(each.nbytes for each in found)
            yield f"  {what}: {counted(len(found), 'file')} of {sized(size)}, such as {found[0].path}"


def _damage_lines(state: str, damage: Damage) -> Iterator[str]:
    yield f"  {state}: {damage.path}: {damage.reason}"
    if damage.worker is not None:
        tensors = f", tensors {listed(damage.tensors, most=_MOST)}" if damage.tensors else ""
        yield f"    of {damage.worker}{_steps(damage.steps)}{tensors}"


def _steps(steps: Sequence[int]) -> str:
    return f", {'step' if len(steps) == 1 else 'steps'} {listed(ranges(steps), most=_MOST)}" if steps else ""
