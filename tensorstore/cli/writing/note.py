"""`tensortrial note RUN`."""

from __future__ import annotations

import click

from ...maintenance.notes import annotate
from ..console import print_line
from ..options import parse_options, run_argument, runs_below_hint, storage_option


@click.command()
@run_argument
@click.argument("text", required=False)
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Add a tag. Can be repeated.")
@click.option("--untag", "removed", multiple=True, metavar="TAG", help="Remove a tag. Can be repeated.")
@click.option("--archive/--unarchive", "archived", default=None, help="Leave the run out of the page's lists, or not.")
@storage_option
def note(
    run: str,
    text: str | None,
    tags: tuple[str, ...],
    removed: tuple[str, ...],
    archived: bool | None,
    storage_options: tuple[str, ...],
) -> None:
    """Write a note about a run, or show its notes.

    TEXT replaces the previous note. Notes are in the file notes.json in the run's folder; the job's files are not
    changed. The page shows the same notes. `mv` moves them, and `rm` deletes them.

    \b
    tensortrial note runs/digits "the baseline of the paper" --tag baseline
    tensortrial note runs/failed --archive
    """
    options = parse_options(storage_options)
    with runs_below_hint(run, storage_options):
        now = annotate(run, note=text, add_tags=tags, remove_tags=removed, archived=archived, storage_options=options)
    facts = [
        *now.note.split("\n"),
        f"tags: {', '.join(now.tags)}" if now.tags else "",
        "archived" if now.archived else "",
    ]
    for fact in [fact for fact in facts if fact] or ["nothing is noted"]:
        print_line(fact)
