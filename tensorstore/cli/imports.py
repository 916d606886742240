"""`tensortrial import FORMAT SOURCE TARGET`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from .console import say, say_name
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
        on_damage=lambda error: say(f"damaged: {error}", err=True),
    )
    say_name(path)


def _left_out(sentence: str) -> None:
    say(f"left out: {sentence}", err=True)


_metadata = click.option(
    "--metadata", multiple=True, metavar="KEY=VALUE", help="Keep this with the run. May be given several times."
)
_step_multiplier = click.option(
    "--step-multiplier", type=click.IntRange(min=1), default=1, help="Makes whole numbers of steps with a fraction."
)
_progress = click.option(
    "--progress/--no-progress", default=True, help="Show a progress bar. [default: if tqdm is installed]"
)


@imports.command("csv")
@click.argument("source")
@click.argument("target")
@click.option("--step", metavar="COLUMN", help="The column of steps. [default: one called step, iteration, epoch, …]")
@click.option("--time", metavar="COLUMN", help="The column of times. [default: one called timestamp, time, …]")
@click.option("--name", metavar="COLUMN", help="The column of names, where each row holds one number.")
@click.option("--value", metavar="COLUMN", help="The column of numbers that goes with it.")
@_step_multiplier
@_metadata
@_progress
@storage_option
def import_csv(
    source: str, target: str, metadata: tuple[str, ...], storage_options: tuple[str, ...], **options: Any
) -> None:
    """Import metrics from a table.

    SOURCE is a CSV or Parquet file, or a folder of such, TARGET where the new run shall be. Each column of numbers
    becomes a scalar.

    \b
    tensortrial import csv log.csv runs/old --step iteration --metadata lr=0.1
    """
    from ..importers.csv import import_run

    told = options_of(metadata, "--metadata")
    path = import_run(
        source, target, metadata=told, storage_options=options_of(storage_options), report=_left_out, **options
    )
    say_name(path)


@imports.command("wandb")
@click.argument("source")
@click.argument("target")
@_metadata
@_progress
@storage_option
def import_wandb(
    source: str, target: str, metadata: tuple[str, ...], storage_options: tuple[str, ...], progress: bool
) -> None:
    """Import what Weights & Biases exported.

    SOURCE is the history of a run, in Parquet or CSV, the CSV of a chart, or a folder of such; TARGET where the new run
    shall be, or, of a chart, the folder for its runs.
    """
    from ..importers.wandb import import_runs

    _import_runs(import_runs, source, target, metadata, storage_options, progress=progress)


@imports.command("neptune")
@click.argument("source")
@click.argument("target")
@_step_multiplier
@_metadata
@_progress
@storage_option
def import_neptune(
    source: str, target: str, metadata: tuple[str, ...], storage_options: tuple[str, ...], **options: Any
) -> None:
    """Import what Neptune exported.

    SOURCE is what neptune-exporter wrote, or a CSV of metrics, or a folder of such; TARGET is the folder for the new
    runs.
    """
    from ..importers.neptune import import_runs

    _import_runs(import_runs, source, target, metadata, storage_options, **options)


@imports.command("tensorboard")
@click.argument("source")
@click.argument("target")
@_metadata
@_progress
@storage_option
def import_tensorboard(
    source: str, target: str, metadata: tuple[str, ...], storage_options: tuple[str, ...], progress: bool
) -> None:
    """Import TensorBoard's event files.

    Scalars, histograms, texts and tensors become a run, or several. SOURCE is an event file or a folder tree of such,
    TARGET where the new run shall be, or, of several, the folder for them.
    """
    from ..importers.tensorboard import import_runs

    _import_runs(import_runs, source, target, metadata, storage_options, progress=progress)


def _import_runs(
    import_runs: Callable[..., list[str]],
    source: str,
    target: str,
    metadata: tuple[str, ...],
    storage_options: tuple[str, ...],
    **options: Any,
) -> None:
    told, remote = options_of(metadata, "--metadata"), options_of(storage_options)
    for path in import_runs(source, target, metadata=told, storage_options=remote, report=_left_out, **options):
        say_name(path)
