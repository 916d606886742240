"""`tensortrial import FORMAT SOURCE TARGET`."""

from __future__ import annotations

import click

from .options import options_of, storage_option


@click.group("import")
def imports() -> None:
    """Make a run from what something else wrote."""


@imports.command("smdebug")
@click.argument("source")
@click.argument("target")
@click.option("--progress/--no-progress", default=True, help="Show a progress bar. [default: if tqdm is installed]")
@storage_option
def import_smdebug(source: str, target: str, progress: bool, storage_options: tuple[str, ...]) -> None:
    """Import a run that smdebug wrote.

    SOURCE is its folder or URL, such as s3://bucket/job/debug-output, TARGET where the new run shall be. Run again, an
    interrupted import goes on where it was.
    """
    # Here, because nothing else at the command line needs what writes runs.
    from ..importers.smdebug import import_run

    options = options_of(storage_options)
    path = import_run(
        source,
        target,
        storage_options=options,
        progress=progress,
        on_damage=lambda error: click.echo(f"damaged: {error}", err=True),
    )
    click.echo(path)
