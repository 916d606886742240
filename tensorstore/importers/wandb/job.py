"""The import of Weights & Biases. The package wandb need not be installed.

from tensortrial.importers.wandb import import_runs

import_runs("run-abc123-history:v0", "runs/abc123")
import_runs("wandb", "runs")
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..metrics import Report, log
from ..tracked_runs import ImportOptions, import_tracked
from .exports import import_exports
from .offline import find_runs


def import_runs(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    metadata: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool = True,
    report: Report = log,
) -> list[str]:
    """Import runs of W&B from `source`, a file or a folder.

    - The `.wandb` file that wandb writes in each run's folder, also with WANDB_MODE=offline: the run's whole history.
      Such a file, or the folder of a run, is imported to `target`; a folder of such folders, such as `wandb`, to the
      folders RUN_ID of `target`. The files of one run that was continued are joined. Numbers become scalars, with
      nested names such as `val.acc`, and histograms stay histograms. The configuration becomes metadata, and W&B's own
      attributes of the run (name, project, tags, times, exit code) are in the metadata under `wandb`.
    - The history of a run, with its columns `_step` and `_timestamp`: the Parquet files of its artifact `…-history`, or
      `run.history()` as CSV. The files of one folder are one run, made at `target`; those of folders below it are
      runs in folders of `target` with the same names.
    - The CSV of a chart, with a column `RUN - METRIC` for each of several runs: each becomes a run in a folder of
      `target`. Its columns with the smallest and the largest value of a point are left out.

    Everything else, such as media, is left out and passed to `report`. Calling it again continues an interrupted
    import, or adds what is new.

    Args:
        source: A file or a folder, as a path or a URL.
        target: Where the runs go.
        metadata: Metadata of the runs, in addition to their own.
        storage_options: The options of the storage of source and target.
        progress: Show a progress bar on a terminal.
        report: Receives a sentence about each thing that was left out. By default it is logged.

    Returns:
        The paths of the imported runs.

    Raises:
        RunNotFound: The source is missing.
        CorruptFile: The source is neither a file of a run of W&B nor an export.
        RunExists: A target holds another run.
    """
    options = ImportOptions(target, metadata, storage_options, progress, report)
    runs = find_runs(source, storage_options, report)
    return import_tracked(runs, "wandb", options) if runs else import_exports(source, options)
