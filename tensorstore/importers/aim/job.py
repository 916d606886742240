"""The import of Aim's repositories. It needs Aim's build of RocksDB (aimrocks), but not Aim itself.

from tensortrial.importers.aim import import_runs

import_runs("project", "runs/aim")
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import ConfigurationError, CorruptFile, RunNotFound
from ...mode import ModeKeys
from ..metrics import Points, Report, log
from ..point_list import PointList
from ..sqlite import Database
from ..tracked_runs import ImportOptions, TrackedRun, import_tracked
from .encoding import Part, tree_of
from .rocksdb import RocksDB
from .sequences import traced

_FOLDER = ".aim"
_TABLES = {"run": ("hash", "name", "experiment_id"), "experiment": ("id", "name")}
_ABOUT = {"name": "run_name", "is_archived": "archived", "finalized_at": "ended_at"}
_HYPERPARAMETERS = "hparams"
_EXPERIMENT = "default"  # Aim's name for the experiment of a run without one


def import_runs(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    metadata: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool = True,
    report: Report = log,
) -> list[str]:
    """Import the runs of the Aim repository at `source`.

    A run goes to the folder EXPERIMENT/HASH of `target`. Numbers become scalars and distributions histograms. The
    `subset` of a context is the mode of its steps. Without one it is TRAIN if others have a subset, else GLOBAL. Other
    keys of a context begin the names, such as `device=0/loss`. Hyperparameters become metadata, and Aim's own
    attributes of the run are in the metadata under `aim`. Texts, media and system metrics are left out. Nothing is
    written into the source. Calling it again continues an interrupted import, or adds new runs and what is new in
    others.

    Args:
        source: The folder of the repository: `.aim`, or the folder that holds it.
        target: The folder for the runs, as a path or a URL.
        metadata: Metadata of the runs, in addition to their own.
        storage_options: The options of the storage of the target.
        progress: Show a progress bar on a terminal.
        report: Receives a sentence about each thing that was left out. By default it is logged.

    Returns:
        The paths of the imported runs.

    Raises:
        RunNotFound: The source is missing, or has no run.
        CorruptFile: The source cannot be read, or has no number.
        StorageError: The SQLite file is in use.
        MissingExtra: aimrocks, which reads the repository, is not installed.
        ConfigurationError: The source is not on a disk, or has steps of modes that the first import did not know.
        RunExists: A target holds another run.
    """
    folder = _repository(os.fspath(source))
    options = ImportOptions(target, metadata, storage_options, progress, report)
    return import_tracked(_runs(folder, report), "aim", options)


def _repository(source: str) -> Path:
    if "://" in source:
        raise ConfigurationError(f"an Aim repository can be read from a disk only: copy {source} to one")
    given = Path(source).absolute()
    for folder in (given / _FOLDER, given):
        if (folder / "meta" / "chunks").is_dir():
            return folder
    raise RunNotFound(str(given), f"there is no Aim repository here: no folder {_FOLDER} with runs")


def _runs(folder: Path, report: Report) -> Iterator[TrackedRun]:
    # The index of a repository lacks runs that no server of Aim has read, so the folders of runs are listed.
    hashes = sorted(each.name for each in (folder / "meta" / "chunks").iterdir() if each.is_dir())
    if not hashes:
        raise RunNotFound(str(folder), "Aim has no run here")
    known = _known_runs(folder, report)
    for run in hashes:
        about = known.get(run, {})
        names = (str(about.get("experiment") or _EXPERIMENT), run)
        yield TrackedRun(names, f"{folder}/{run}", partial(_read, folder, run, about, report))


def _known_runs(folder: Path, report: Report) -> dict[str, dict[str, Any]]:
    """Return the attributes of runs in a repository's SQLite file, by their hashes."""
    path = folder / "run_metadata.sqlite"
    if not path.is_file():
        return {}
    try:
        with closing(Database(path, "the SQLite file of an Aim repository", _TABLES)) as database:
            return _rows(database)
    except CorruptFile as exc:
        report(f"{exc}; the names and experiments of runs are left out")
        return {}


def _rows(database: Database) -> dict[str, dict[str, Any]]:
    columns = ("name", "description", "is_archived", "created_at", "finalized_at")
    there = [column for column in columns if column in database.columns["run"]]
    names = "".join(f", run.{column}" for column in there)
    joined = "run LEFT JOIN experiment ON run.experiment_id = experiment.id"
    found = dict[str, dict[str, Any]]()
    for run, experiment, *values in database.rows(f"SELECT run.hash, experiment.name{names} FROM {joined}"):
        found[str(run)] = {"experiment": experiment, **dict(zip(there, values, strict=True))}
    if {"tag", "run_tag"} <= database.columns.keys():
        tags = "run_tag JOIN run ON run.id = run_tag.run_id JOIN tag ON tag.id = run_tag.tag_id"
        for run, tag in database.rows(f"SELECT run.hash, tag.name FROM {tags} ORDER BY tag.name"):
            found.get(str(run), {}).setdefault("tags", []).append(tag)
    return found


def _read(folder: Path, run: str, about: Mapping[str, Any], report: Report) -> Points:
    source = f"{folder}/{run}"
    with closing(RocksDB(folder / "meta" / "chunks" / run)) as database:
        attributes = _tree(database, run, "attrs")
        sequences, system = traced(_tree(database, run, "traces"), _tree(database, run, "contexts"))
    modes = [mode for mode in ModeKeys if any(sequence.mode is mode for sequence in sequences)]
    found = PointList(source, report, modes or [ModeKeys.GLOBAL])
    if sequences:
        with closing(RocksDB(folder / "seqs" / "chunks" / run)) as database:
            for sequence in sequences:
                sequence.add_to(found, database, run)
    if system:
        report(f"{source}: {system} sequences of system metrics")
    return found.points(_metadata(run, attributes, about))


def _tree(database: RocksDB, run: str, name: str) -> dict[Part, Any]:
    return tree_of(database.below("meta", "chunks", run, name))


def _metadata(run: str, attributes: Mapping[Part, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    # The names of Aim's own entries, such as the environment variables, begin with underscores.
    own = {str(key): value for key, value in attributes.items() if not str(key).startswith("__")}
    if isinstance(own.get(_HYPERPARAMETERS), Mapping):
        parameters = own.pop(_HYPERPARAMETERS)
        own |= {str(key): value for key, value in parameters.items()}
    known = {"hash": run} | {_ABOUT.get(key, key): value for key, value in about.items()}
    return {**own, "aim": {key: value for key, value in known.items() if value not in (None, "", 0)}}
