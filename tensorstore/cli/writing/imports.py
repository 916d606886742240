"""`tensortrial import FORMAT SOURCE TARGET`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ..completion import complete_run
from ..console import print_line, print_name
from ..options import parse_options, storage_option


@click.group("import")
def imports() -> None:
    """Create a run from files that another program wrote."""


@imports.command("smdebug")
@click.argument("source", shell_complete=complete_run)
@click.argument("target", shell_complete=complete_run)
@click.option("--progress/--no-progress", default=True, help="Show a progress bar. [default: if tqdm is installed]")
@storage_option
def import_smdebug(source: str, target: str, progress: bool, storage_options: tuple[str, ...]) -> None:
    """Import the runs that smdebug wrote.

    SOURCE is the folder or URL of a run, such as s3://bucket/job/debug-output, or of a folder of runs. TARGET is the
    folder or URL of the new run or, for several, the folder for them. After an interruption, run the command again: it
    continues.
    """
    # Imported here, because no other command needs what writes runs.
    from ...importers.smdebug import import_runs

    options = parse_options(storage_options)
    paths = import_runs(
        source,
        target,
        storage_options=options,
        progress=progress,
        on_damage=lambda error: print_line(f"damaged: {error}", err=True),
    )
    for path in paths:
        print_name(path)


def _report_skipped(sentence: str) -> None:
    print_line(f"skipped: {sentence}", err=True)


_metadata = click.option("--metadata", multiple=True, metavar="KEY=VALUE", help="Metadata of the run. Can be repeated.")
_step_multiplier = click.option(
    "--step-multiplier",
    type=click.IntRange(min=1),
    default=1,
    help="Multiply steps by this number, if they have fractions.",
)
_progress = click.option(
    "--progress/--no-progress", default=True, help="Show a progress bar. [default: if tqdm is installed]"
)


@imports.command("csv")
@click.argument("source", shell_complete=complete_run)
@click.argument("target", shell_complete=complete_run)
@click.option("--step", metavar="COLUMN", help="The column of steps. [default: one named step, iteration, epoch, …]")
@click.option("--time", metavar="COLUMN", help="The column of times. [default: one named timestamp, time, …]")
@click.option("--name", metavar="COLUMN", help="The column of names, if each row has one number.")
@click.option("--value", metavar="COLUMN", help="The column of numbers, with --name.")
@_step_multiplier
@_metadata
@_progress
@storage_option
def import_csv(
    source: str, target: str, metadata: tuple[str, ...], storage_options: tuple[str, ...], **options: Any
) -> None:
    """Import metrics from a table.

    SOURCE is a CSV or Parquet file, or a folder of them, and TARGET the folder or URL of the new run. Each column of
    numbers becomes a scalar.

    \b
    tensortrial import csv log.csv runs/old --step iteration --metadata lr=0.1
    """
    from ...importers.csv import import_run

    path = import_run(
        source,
        target,
        metadata=parse_options(metadata, "--metadata"),
        storage_options=parse_options(storage_options),
        report=_report_skipped,
        **options,
    )
    print_name(path)


@imports.command("mlflow")
@click.argument("source")
@click.argument("target")
@click.option("--artifacts", is_flag=True, help="Import also tables of numbers among the artifacts.")
@_metadata
@_progress
@storage_option
def import_mlflow(
    source: str, target: str, metadata: tuple[str, ...], storage_options: tuple[str, ...], **options: Any
) -> None:
    """Import the runs of MLflow.

    SOURCE is the folder mlruns, the folder of an experiment or a run in it, or an SQLite file. TARGET is the folder for
    the new runs, which go to EXPERIMENT/RUN_ID.
    """
    from ...importers.mlflow import import_runs

    _import_runs(import_runs, source, target, metadata, storage_options, **options)


@imports.command("aim")
@click.argument("source")
@click.argument("target")
@_metadata
@_progress
@storage_option
def import_aim(
    source: str, target: str, metadata: tuple[str, ...], storage_options: tuple[str, ...], progress: bool
) -> None:
    """Import the runs of Aim.

    SOURCE is the folder .aim, or the folder that holds it. TARGET is the folder for the new runs, which go to
    EXPERIMENT/HASH.
    """
    from ...importers.aim import import_runs

    _import_runs(import_runs, source, target, metadata, storage_options, progress=progress)


@imports.command("trackio")
@click.argument("source")
@click.argument("target")
@_metadata
@_progress
@storage_option
def import_trackio(
    source: str, target: str, metadata: tuple[str, ...], storage_options: tuple[str, ...], progress: bool
) -> None:
    """Import the runs of Trackio.

    SOURCE is the SQLite file of a project, or the folder of all. TARGET is the folder for the new runs, which go to
    PROJECT/RUN.
    """
    from ...importers.trackio import import_runs

    _import_runs(import_runs, source, target, metadata, storage_options, progress=progress)


@imports.command("lightning")
@click.argument("source")
@click.argument("target")
@_metadata
@_progress
@storage_option
def import_lightning(
    source: str, target: str, metadata: tuple[str, ...], storage_options: tuple[str, ...], progress: bool
) -> None:
    """Import the runs that Lightning's CSVLogger wrote.

    SOURCE is the folder of a run, with metrics.csv, or a folder of such folders. TARGET is the folder or URL of the new
    run, or, for several, the folder for them.
    """
    from ...importers.lightning import import_runs

    _import_runs(import_runs, source, target, metadata, storage_options, progress=progress)


@imports.command("transformers")
@click.argument("source")
@click.argument("target")
@_metadata
@_progress
@storage_option
def import_transformers(
    source: str, target: str, metadata: tuple[str, ...], storage_options: tuple[str, ...], progress: bool
) -> None:
    """Import what the Trainer of transformers logged.

    SOURCE is trainer_state.json, a checkpoint, the Trainer's output_dir, or a folder of several. TARGET is the folder
    or URL of the new run, or, for several, the folder for them.
    """
    from ...importers.transformers import import_runs

    _import_runs(import_runs, source, target, metadata, storage_options, progress=progress)


@imports.command("wandb")
@click.argument("source", shell_complete=complete_run)
@click.argument("target", shell_complete=complete_run)
@_metadata
@_progress
@storage_option
def import_wandb(
    source: str, target: str, metadata: tuple[str, ...], storage_options: tuple[str, ...], progress: bool
) -> None:
    """Import runs of Weights & Biases.

    SOURCE is the .wandb file of a run, the history of a run in Parquet or CSV, the CSV of a chart, or a folder of them.
    TARGET is the folder or URL of the new run, or, for several, the folder for them.
    """
    from ...importers.wandb import import_runs

    _import_runs(import_runs, source, target, metadata, storage_options, progress=progress)


@imports.command("neptune")
@click.argument("source", shell_complete=complete_run)
@click.argument("target", shell_complete=complete_run)
@_step_multiplier
@_metadata
@_progress
@storage_option
def import_neptune(
    source: str, target: str, metadata: tuple[str, ...], storage_options: tuple[str, ...], **options: Any
) -> None:
    """Import an export of Neptune.

    SOURCE is the output of neptune-exporter, a CSV of metrics, or a folder of them. TARGET is the folder for the new
    runs.
    """
    from ...importers.neptune import import_runs

    _import_runs(import_runs, source, target, metadata, storage_options, **options)


@imports.command("tensorboard")
@click.argument("source", shell_complete=complete_run)
@click.argument("target", shell_complete=complete_run)
@_metadata
@_progress
@storage_option
def import_tensorboard(
    source: str, target: str, metadata: tuple[str, ...], storage_options: tuple[str, ...], progress: bool
) -> None:
    """Import TensorBoard's event files.

    Scalars, histograms, texts and tensors become one or several runs. SOURCE is an event file or a folder tree of them.
    TARGET is the folder or URL of the new run, or, for several, the folder for them.
    """
    from ...importers.tensorboard import import_runs

    _import_runs(import_runs, source, target, metadata, storage_options, progress=progress)


def _import_runs(
    import_runs: Callable[..., list[str]],
    source: str,
    target: str,
    metadata: tuple[str, ...],
    storage_options: tuple[str, ...],
    **options: Any,
) -> None:
    paths = import_runs(
        source,
        target,
        metadata=parse_options(metadata, "--metadata"),
        storage_options=parse_options(storage_options),
        report=_report_skipped,
        **options,
    )
    for path in paths:
        print_name(path)
