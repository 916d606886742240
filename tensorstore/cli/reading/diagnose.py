"""`tensortrial diagnose RUN`."""

from __future__ import annotations

import json
import textwrap

import click

from ...diagnosis import Diagnosis
from ...diagnosis import diagnose as diagnose_run
from ...visible import visible
from ..console import console_for
from ..options import error_status, open_trial, progress_option, run_argument, storage_option

_HEALTHY, _SICK, _ERROR = 0, 1, 2


@click.command()
@run_argument
@click.option("--all", "whole", is_flag=True, help="Print all problems, and what to save for the other rules.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole answer as one JSON object.")
@progress_option
@storage_option
@error_status(_ERROR)
def diagnose(run: str, whole: bool, as_json: bool, progress: bool, storage_options: tuple[str, ...]) -> None:
    """Find out what went wrong, where it began, and what to try.

    Evaluates all rules that the saved data allows, in the order of steps and of the execution within a step, and joins
    findings that have one cause. Prints the first cause, what to try, and at most five lines about other problems.

    The exit status is 0 if there are no problems, 1 if there are any, and 2 if there are none but the run, or a file of
    it, cannot be read.
    """
    found = diagnose_run(open_trial(run, storage_options), progress=progress)
    if as_json:
        click.echo(json.dumps(found.to_json(), ensure_ascii=False))
    else:
        _print(found, found.details if whole else str(found))
    raise SystemExit(_SICK if not found.is_healthy else _ERROR if found.damaged else _HEALTHY)


def _print(found: Diagnosis, text: str) -> None:
    """Print a diagnosis. On a terminal, its first cause is bold, and long lines are folded at words."""
    console = console_for()
    for line in text.splitlines():
        indent = "  " if line.startswith("- ") else ""
        folded = textwrap.wrap(visible(line), console.width - 1, subsequent_indent=indent, break_on_hyphens=False)
        console.print("\n".join(folded), style="bold" if line == found.headline else None)
