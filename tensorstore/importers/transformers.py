"""The import of logs of the Hugging Face Trainer. The library transformers need not be installed.

from tensortrial.importers.transformers import import_runs

import_runs("output", "runs/output")
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from ..errors import CorruptFile, RunNotFound
from ..storage.open import Storage
from .documents import json_of
from .metrics import Points, Report, log
from .point_list import PointList
from .sources import files_below, open_source
from .tracked_runs import ImportOptions, import_tracked, runs_of_folders

_STATE = "trainer_state.json"
_CHECKPOINT = "checkpoint-"
_DEPTH = 5


def import_runs(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    metadata: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool = True,
    report: Report = log,
) -> list[str]:
    """Import the Trainer's logs from the `trainer_state.json` that it writes next to a checkpoint.

    Logged numbers become scalars with the names in the file, such as `loss` and `eval_loss`, at the steps of the
    optimizer; the rest of the state becomes metadata. The newest checkpoint of a training has the whole history, so
    only that one is imported. A file, a checkpoint or the Trainer's `output_dir` is imported to `target`, and a folder
    of several to folders of `target` with the same names. The Trainer keeps no times. Calling it again continues an
    interrupted import, or adds what is new.

    Args:
        source: A file or a folder, as a path or a URL.
        target: Where the runs go.
        metadata: Metadata of the runs, in addition to the Trainer's.
        storage_options: The options of the storage of source and target.
        progress: Show a progress bar on a terminal.
        report: Receives a sentence about each thing that was left out. By default it is logged.

    Returns:
        The paths of the imported runs.

    Raises:
        RunNotFound: There is no trainer_state.json.
        CorruptFile: The file is damaged, or is not the Trainer's.
        RunExists: A target holds another run.
    """
    storage, _ = open_source(source, storage_options, _STATE.__eq__)
    files: dict[str, list[str]] = {}
    for path in files_below(storage, _STATE.__eq__, _DEPTH):
        folder = path.rpartition("/")[0]
        above, _, name = folder.rpartition("/")
        files.setdefault(above if name.startswith(_CHECKPOINT) else folder, []).append(path)
    if not files:
        raise RunNotFound(storage.url, f"there is no {_STATE} here, which the Trainer writes with a checkpoint")
    runs = runs_of_folders(
        storage, {folder: partial(_read, storage, paths, report=report) for folder, paths in files.items()}
    )
    return import_tracked(runs, "transformers", ImportOptions(target, metadata, storage_options, progress, report))


def _read(storage: Storage, paths: list[str], url: str, report: Report) -> Points:
    # The newest checkpoint has the largest step in its name. The state of the finished training has no step in its
    # path.
    newest = sorted(paths, key=_number)[-1:]
    candidates = [_state(storage, path) for path in {*newest, *(path for path in paths if _number(path) < 0)}]
    state = max(candidates, key=lambda state: len(state["log_history"]))
    found = PointList(url, report)
    for entry in state["log_history"]:
        if isinstance(entry, dict):
            found.add_nested(entry, entry.get("step"), ignored=frozenset({"step"}))
    about = {key: value for key, value in state.items() if key != "log_history"}
    return found.points({"trainer": about})


def _state(storage: Storage, path: str) -> dict[str, Any]:
    url = f"{storage.url}/{path}"
    state = json_of(storage.read(path), url)
    if not isinstance(state, dict) or not isinstance(state.get("log_history"), list):
        raise CorruptFile(url, "this is not the state of a Trainer: it lacks the list log_history")
    return state


def _number(path: str) -> int:
    """Return the step of a checkpoint's file; -1 for another file."""
    name = path.rpartition("/")[0].rpartition("/")[2].removeprefix(_CHECKPOINT)
    return int(name) if name.isdecimal() and name.isascii() else -1
