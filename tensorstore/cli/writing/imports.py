"""`tensortrial import FORMAT SOURCE TARGET`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import click

from ..argument_order import SuggestingGroup
from ..completion import complete_run
from ..console import print_line, print_name
from ..options import parse_options, progress_option, storage_option


class _Formats(SuggestingGroup):
    noun = "format"

    def without_similar(self, known: Sequence[str]) -> str:
        return f"; it must be one of {', '.join(known)}"


@click.group("import", cls=_Formats)
def imports() -> None:
    """Create a run from files that another program wrote."""


@imports.command("smdebug")
@click.argument("source", shell_complete=complete_run)
@click.argument("target", shell_complete=complete_run)
@progress_option
@storage_option
def import_smdebug(source: str, target: str, progress: bool, storage_options: tuple[str, ...]) -> None:
    """Import the runs that smdebug wrote.

    SOURCE is the folder or URL of a run, such as s3://bucket/job/debug-output, or of a folder of runs. TARGET is the
    folder or URL of the new run or, for several, the folder for them. After an interruption, run the command again: it
    continues.
    """
    # Imported here, because no other command needs the modules that write runs.
    from ...importers.smdebug import import_runs

    paths = import_runs(
        source,
        target,
        storage_options=parse_options(storage_options),
        progress=progress,
        on_damage=lambda error: print_line(f"damaged: {error}", err=True),
    )
    for path in paths:
        print_name(path)


def _add_command(name: str, text: str, options: Sequence[Callable[..., Any]] = ()) -> None:
    """Add the command for a format of metrics. `options` are arguments of the importer, the module of that name."""

    @click.argument("source", shell_complete=complete_run)
    @click.argument("target", shell_complete=complete_run)
    @click.option("--metadata", multiple=True, metavar="KEY=VALUE", help="Metadata of the run. Can be repeated.")
    @progress_option
    @storage_option
    def command(
        source: str, target: str, metadata: tuple[str, ...], storage_options: tuple[str, ...], **others: Any
    ) -> None:
        importer = import_module(f"tensortrial.importers.{name}")
        others |= {
            "metadata": parse_options(metadata, "--metadata"),
            "storage_options": parse_options(storage_options),
            "report": lambda sentence: print_line(f"skipped: {sentence}", err=True),
        }
        if name == "csv":  # all tables in a folder form one run
            paths = [importer.import_run(source, target, **others)]
        else:
            paths = importer.import_runs(source, target, **others)
        for path in paths:
            print_name(path)

    for option in reversed(options):
        command = option(command)
    imports.command(name, help=text)(command)


_STEP_MULTIPLIER = click.option(
    "--step-multiplier",
    type=click.IntRange(min=1),
    default=1,
    help="Multiply steps by this number, if they have fractions.",
)

_add_command(
    "csv",
    """Import metrics from a table.

    SOURCE is a CSV or Parquet file, or a folder of them, and TARGET the folder or URL of the new run. Each column of
    numbers becomes a scalar.

    \b
    tensortrial import csv log.csv runs/old --step iteration --metadata lr=0.1
    """,
    [
        click.option(
            "--step", metavar="COLUMN", help="The column of steps. [default: one named step, iteration, epoch, …]"
        ),
        click.option("--time", metavar="COLUMN", help="The column of times. [default: one named timestamp, time, …]"),
        click.option("--name", metavar="COLUMN", help="The column of names, if each row has one number."),
        click.option("--value", metavar="COLUMN", help="The column of numbers, with --name."),
        _STEP_MULTIPLIER,
    ],
)
_add_command(
    "mlflow",
    """Import the runs of MLflow.

    SOURCE is the folder mlruns, the folder of an experiment or a run in it, or an SQLite file. TARGET is the folder for
    the new runs, which go to EXPERIMENT/RUN_ID.
    """,
    [click.option("--artifacts", is_flag=True, help="Import also tables of numbers among the artifacts.")],
)
_add_command(
    "aim",
    """Import the runs of Aim.

    SOURCE is the folder .aim, or the folder that holds it. TARGET is the folder for the new runs, which go to
    EXPERIMENT/HASH.
    """,
)
_add_command(
    "trackio",
    """Import the runs of Trackio.

    SOURCE is the SQLite file of a project, or the folder of all. TARGET is the folder for the new runs, which go to
    PROJECT/RUN.
    """,
)
_add_command(
    "lightning",
    """Import the runs that Lightning's CSVLogger wrote.

    SOURCE is the folder of a run, with metrics.csv, or a folder of such folders. TARGET is the folder or URL of the new
    run, or, for several, the folder for them.
    """,
)
_add_command(
    "transformers",
    """Import what the Trainer of transformers logged.

    SOURCE is trainer_state.json, a checkpoint, the Trainer's output_dir, or a folder of several. TARGET is the folder
    or URL of the new run, or, for several, the folder for them.
    """,
)
_add_command(
    "wandb",
    """Import runs of Weights & Biases.

    SOURCE is the .wandb file of a run, the history of a run in Parquet or CSV, the CSV of a chart, or a folder of them.
    TARGET is the folder or URL of the new run, or, for several, the folder for them.
    """,
)
_add_command(
    "neptune",
    """Import an export of Neptune.

    SOURCE is the output of neptune-exporter, a CSV of metrics, or a folder of them. TARGET is the folder for the new
    runs.
    """,
    [_STEP_MULTIPLIER],
)
_add_command(
    "tensorboard",
    """Import TensorBoard's event files.

    Scalars, histograms, texts and tensors become one or several runs. SOURCE is an event file or a folder tree of them.
    TARGET is the folder or URL of the new run, or, for several, the folder for them.
    """,
)
