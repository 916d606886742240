"""`tensortrial compact RUN`."""

from __future__ import annotations

import click

from ..maintenance import compaction
from .console import say
from .options import counted, options_of, place_errors, run_argument, storage_option


@click.command("compact")
@run_argument
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Keep the small files so long, for readers that have begun to read them; 0 if nobody reads.",
)
@click.option("--progress/--no-progress", default=True, help="Show a progress bar. [default: if tqdm is installed]")
@storage_option
def compact(run: str, grace: float, progress: bool, storage_options: tuple[str, ...]) -> None:
    """Make few files of the many small ones of a run.

    Opening and querying a long run gets faster. A run can be compacted while it is written and read, and again as it
    grows; what was interrupted is finished the next time.

    \b
    tensortrial compact runs/long
    """
    with place_errors(run, storage_options):
        done = compaction.compact(run, grace=grace, storage_options=options_of(storage_options), progress=progress)
    for error in done.damaged.values():
        say(f"damaged, and left as it is: {error}", err=True)
    before = f"{counted(done.files_before, 'index file')} of {_size(done.bytes_before)}"
    if done.files_before == done.files_after:
        click.echo(f"{before}: there is nothing to put together")
    else:
        click.echo(f"{before} are now {done.files_after} of {_size(done.bytes_after)}")
    if done.chunks_merged:
        click.echo(f"{done.chunks_merged} files of raw values are now {done.chunks_made}")


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"
