"""`tensortrial compact RUN`."""

from __future__ import annotations

import click

from ...maintenance import compaction
from ..console import print_line
from ..options import (
    Seconds,
    count_of,
    parse_options,
    progress_option,
    run_argument,
    runs_below_hint,
    size_of,
    storage_option,
)


@click.command("compact")
@run_argument
@click.option(
    "--grace",
    type=Seconds(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to keep the small files for readers that have begun to read them; 0 if nobody reads.",
)
@progress_option
@storage_option
def compact(run: str, grace: float, progress: bool, storage_options: tuple[str, ...]) -> None:
    """Merge the many small files of a run into few.

    A long run is then opened and queried faster. A run can be compacted while it is written and read, and again as it
    grows. After an interruption, run the command again.

    \b
    tensortrial compact runs/long
    """
    with runs_below_hint(run, storage_options):
        done = compaction.compact(run, grace=grace, storage_options=parse_options(storage_options), progress=progress)
    for error in done.damaged.values():
        print_line(f"damaged and not merged: {error}", err=True)
    before = f"{count_of(done.files_before, 'index file')} of {size_of(done.bytes_before)}"
    if done.files_before == done.files_after:
        click.echo(f"{before}: nothing to merge")
    else:
        click.echo(f"{before} are now {done.files_after} of {size_of(done.bytes_after)}")
    if done.chunks_merged:
        click.echo(f"{done.chunks_merged} files of raw values are now {done.chunks_made}")
