"""`tensortrial repair RUN`."""

from __future__ import annotations

import click

from ...maintenance import repair as repairing
from ..console import print_line
from ..options import Seconds, parse_options, progress_option, run_argument, runs_below_hint, storage_option

_STILL_DAMAGED = 1


@click.command()
@run_argument
@click.option("--dry-run", is_flag=True, help="Change nothing, and print what would be done.")
@click.option("--force", is_flag=True, help="Repair the run although a process writes to it.")
@click.option(
    "--delete-older-than",
    type=Seconds(min=0),
    default="1h",
    show_default=True,
    metavar="DURATION",
    help="Delete only older files, because a writer or a compaction may be about to name a younger one. "
    "In seconds, or with a unit: 90, 30m, 1h, 7d.",
)
@progress_option
@storage_option
def repair(
    run: str, dry_run: bool, force: bool, delete_older_than: float, progress: bool, storage_options: tuple[str, ...]
) -> None:
    """Remove files that belong to no step, and mark lost ones.

    Raw values that no index file refers to, and temporary files, are removed. Damaged or missing index files and raw
    values are marked as lost: they are not changed, and the run is treated as whole. After an interruption, run the
    command again.

    The exit status is 1 if a damaged file cannot be marked, such as run.json.

    \b
    tensortrial repair runs/digits --dry-run
    """
    with runs_below_hint(run, storage_options):
        done = repairing.repair(
            run,
            dry_run=dry_run,
            force=force,
            delete_older_than=delete_older_than,
            storage_options=parse_options(storage_options),
            progress=progress,
        )
    would = "would be " if dry_run else ""
    for path in done.marked:
        print_line(f"{would}marked as lost: {path}")
    for path in done.removed:
        print_line(f"{would}removed: {path}")
    for path in done.kept:
        print_line(f"kept: {path}: it is too young to be removed, or its index file may be lost")
    for damage in done.damaged:
        print_line(f"still damaged: {damage.path}: {damage.reason}", err=True)
    if not (done.marked or done.removed or done.kept or done.damaged):
        click.echo("nothing to repair")
    if done.damaged:
        raise SystemExit(_STILL_DAMAGED)
