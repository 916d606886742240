"""`tensortrial mv RUN TARGET`."""

from __future__ import annotations

import click

from ...maintenance.relocation import move
from ..console import print_line, working
from ..options import parse_options, run_argument, runs_below_hint, storage_option


@click.command("mv")
@run_argument
@click.argument("target")
@storage_option
def mv(run: str, target: str, storage_options: tuple[str, ...]) -> None:
    """Rename a run, or move it to another folder or URL.

    If TARGET is a folder, the run moves into it. A run that a living process writes to is refused, and nothing is ever
    overwritten. A reader that opens the run meanwhile finds it complete, in the old or the new place.

    \b
    tensortrial mv runs/digits runs/baseline
    tensortrial mv runs/digits s3://bucket/runs/digits
    """
    with runs_below_hint(run, storage_options):
        with working(f"moving {run}"):
            moved = move(run, target, storage_options=parse_options(storage_options))
        print_line(f"moved: {run} to {moved}")
