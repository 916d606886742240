"""`tensortrial rm RUN…`."""

from __future__ import annotations

import sys

import click

from ...errors import TensorTrialError
from ...maintenance.relocation import remove
from ...visible import counted
from ..console import print_line
from ..options import parse_options, runs_argument, runs_below_hint, storage_option
from ..sentences import sentence_of

_NOT_ALL = 1


@click.command("rm")
@runs_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@storage_option
def rm(runs: tuple[str, ...], yes: bool, storage_options: tuple[str, ...]) -> None:
    """Delete runs.

    A run that a living process writes to is refused. Other files in its folder, such as checkpoints, are kept. On a
    terminal the command asks first; elsewhere it needs --yes.

    The exit status is 1 if a run could not be deleted. The others are.

    \b
    tensortrial rm runs/failed-1 runs/failed-2
    """
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("there is no terminal to ask on; pass --yes to delete without a question")
        click.confirm(f"Delete {counted(len(runs), 'run')}: {', '.join(runs)}?", abort=True, err=True)
    failed = False
    for run in runs:
        try:
            with runs_below_hint(run, storage_options):
                kept = remove(run, storage_options=parse_options(storage_options))
        except TensorTrialError as exc:
            print_line(f"Error: {sentence_of(exc)}", err=True)
            failed = True
            continue
        stay = "stays" if len(kept) == 1 else "stay"
        left = f"; {counted(len(kept), 'other file')} {stay} in its folder" if kept else ""
        print_line(f"deleted: {run}{left}")
    if failed:
        raise SystemExit(_NOT_ALL)
