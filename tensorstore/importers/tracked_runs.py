"""The import of the runs of an experiment tracker, each into a run of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..config.metadata import checked_metadata
from ..errors import CorruptFile
from ..storage.open import Storage
from .metrics import Points, Report, import_points, joined
from .sources import folders_of_runs, open_target, url_of


@dataclass(frozen=True)
class TrackedRun:
    """A run in the store of a tracker."""

    folders: Sequence[str]
    """The nested folders of the run below the target, from the outermost, such as project and run.

    Empty if the run is imported to the target itself.
    """
    source: str
    """The identity of the run, for messages and for a later import of the same run."""
    read: Callable[[], Points]
    """Reads the run. Raises CorruptFile."""


@dataclass(frozen=True)
class ImportOptions:
    """The arguments that every importer of a tracker's runs accepts."""

    target: str | os.PathLike[str]
    metadata: Mapping[str, Any] | None
    storage_options: Mapping[str, Any] | None
    progress: bool
    report: Report


def import_tracked(runs: Iterable[TrackedRun], tool: str, options: ImportOptions) -> list[str]:
    """Import runs one after another, and return their paths.

    A run that cannot be read, or has no number, is reported, and the others are imported.

    Raises:
        CorruptFile: No run has a number.
        RunExists: A target holds another run.
    """
    extra = checked_metadata(options.metadata)
    made, damage = list[str](), list[CorruptFile]()
    for run in runs:
        try:
            points = run.read()
            if not len(points):
                raise CorruptFile(run.source, "this run has no number that could be imported")
        except CorruptFile as exc:
            damage.append(exc)
            if len(damage) > 1 or made:
                options.report(str(exc))
            continue
        if damage and not made:
            options.report(str(damage[0]))
        points = replace(points, metadata={**checked_metadata(points.metadata), **extra})
        target = open_target(options.target, run.folders, options.storage_options)
        made.append(import_points(points, run.source, tool, target, options.progress, options.report))
    if damage and not made:
        raise damage[0]
    return made


def runs_of_folders(storage: Storage, read: Mapping[str, Callable[[str], Points]]) -> list[TrackedRun]:
    """Return the runs in folders of a source, each with a function that receives the URL of its folder."""
    urls = {folder: url_of(storage, folder) for folder in read}
    folders = folders_of_runs(read, storage.url)
    return [TrackedRun(folders[each], urls[each], partial(read[each], urls[each])) for each in sorted(read)]


def import_exported(
    runs: Mapping[str, Sequence[Points]], url: str, tool: str, name: str, options: ImportOptions
) -> list[str]:
    """Import the runs of the export at `url`, in which a run may have several files, and return their paths.

    Raises:
        CorruptFile: No run has a number or metadata.
        RunExists: A target holds another run.
    """
    if not any(len(points) or points.metadata for parts in runs.values() for points in parts):
        raise CorruptFile(url, f"this export of {name} has no number that could be imported")
    made = []
    folders = folders_of_runs(runs, url)
    for run, parts in runs.items():
        target = open_target(options.target, folders[run], options.storage_options)
        source, points = f"{url}/{run}" if run else url, joined(parts, options.metadata)
        made.append(import_points(points, source, tool, target, options.progress, options.report))
    return made
