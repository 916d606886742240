"""`tensortrial compact RUN`."""

from __future__ import annotations

import time

import click

from ...maintenance import compaction
from ...visible import counted, sized
from ..console import print_line
from ..options import (
    Seconds,
    parse_options,
    progress_option,
    run_argument,
    runs_below_hint,
    storage_option,
)


@click.command("compact")
@run_argument
@click.option(
    "--delete-older-than",
    type=Seconds(min=0),
    default="1h",
    show_default=True,
    metavar="DURATION",
    help="Delete only files that were superseded longer ago, because readers may use younger ones; 0 if nobody reads. "
    "In seconds, or with a unit: 90, 30m, 1h, 7d.",
)
@progress_option
@storage_option
def compact(run: str, delete_older_than: float, progress: bool, storage_options: tuple[str, ...]) -> None:
    """Merge the many small files of a run into few.

    A long run is then opened and queried faster. A run can be compacted while it is written and read, and again as it
    grows. Each time, superseded files that are old enough are deleted. After an interruption, run the command again.

    \b
    tensortrial compact runs/long
    """
    options = parse_options(storage_options)
    with runs_below_hint(run, storage_options):
        done = compaction.compact(run, delete_older_than=delete_older_than, storage_options=options, progress=progress)
    for error in done.damaged.values():
        print_line(f"damaged and not merged: {error}", err=True)
    before = f"{counted(done.files_before, 'index file')} of {sized(done.bytes_before)}"
    if done.files_before == done.files_after:
        click.echo(f"{before}: nothing to merge")
    else:
        click.echo(f"{before} are now {done.files_after} of {sized(done.bytes_after)}")
    if done.chunks_merged:
        click.echo(f"{done.chunks_merged} files of raw values are now {done.chunks_made}")
    if done.deleted_files:
        click.echo(f"{counted(done.deleted_files, 'superseded file')} deleted")
    if done.deletable_at is not None:
        kept = f"{counted(done.superseded_files, 'superseded file')} of {sized(done.superseded_bytes)}"
        minutes = max(0.0, done.deletable_at - time.time()) / 60
        click.echo(f"{kept} kept for readers; compact again in {minutes:.0f} min to delete all of them")
