"""A run that smdebug wrote: its files, its collections, its steps.

    collections/000000000/WORKER_collections.json       the collections, and the number of workers
    index/STEP div 1000/STEP_WORKER.json                the mode, the mode step, and where in the events each tensor is
    events/STEP/STEP_WORKER.tfevents                    the tensors
    training_job_end.ts                                 the job has ended

STEP is the global step in twelve digits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...config.collection import Collection
from ...config.reduction_config import ReductionConfig
from ...config.save_config import SaveConfig
from ...errors import ConfigurationError, CorruptFile, FileError
from ...format.schema import WorkerInfo
from ...mode import ModeKeys
from ...statistics.definitions import parse_statistic
from ...storage.open import Storage

Report = Callable[[FileError], None]
"""Receives an error for each file, or part of one, that cannot be read."""

_END = "training_job_end.ts"
_REDUCTIONS = "smdebug/reductions/"
_COLLECTIONS_FILE = "_collections.json"
_RUN_FILE = re.compile(
    r"(?:(?P<run>.+?)/)??(?:collections/\d+/[^/]+_collections\.json|events/\d+/[^/]+\.tfevents)", re.S
)
_STEP_FILE = re.compile(r"(\d{1,18})_(.+)\.(?:json|tfevents)")
_MOST = 1 << 63
_MOST_WORKERS = 1 << 20  # that a run may have
# The errors of reading fields of a JSON document with an unexpected structure.
_NOT_AS_EXPECTED = (KeyError, TypeError, AttributeError, OverflowError, RecursionError)


@dataclass(slots=True)
class StepFiles:
    """The files of one step of one worker. One of them is None if the job died before writing it, or if it was lost."""

    worker: str
    global_step: int
    index: str | None = None
    events: str | None = None


@dataclass(frozen=True, slots=True)
class StepIndex:
    """The content of an index file."""

    mode: ModeKeys
    mode_step: int
    names: dict[int, str]
    """The name of each tensor of the event file, by the position where its record begins; ascending."""
    shapes: dict[str, tuple[int, ...]]
    """The saved shapes, with or without values and reductions of their tensors."""


@dataclass(slots=True)
class WorkerCollections:
    """The collections of one worker."""

    num_workers: int = 1
    collections: list[Collection] = field(default_factory=list)
    _of: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def of(self, name: str) -> tuple[str, ...]:
        """Return the names of the collections that a tensor belongs to, sorted."""
        if name not in self._of:
            self._of[name] = tuple(sorted(each.name for each in self.collections if each.matches(name)))
        return self._of[name]

    def has(self, name: str) -> bool:
        """Return whether a collection lists the tensor by its name."""
        return any(name in each.tensor_names for each in self.collections)

    def info(self, worker: str, num_workers: int, started_at: str) -> WorkerInfo:
        """Return the worker's claim with these collections."""
        saved = [each.name for each in self.collections if each.tensor_names]
        return WorkerInfo(worker, num_workers, started_at, [each.to_json_dict() for each in self.collections], saved)


class SmdebugRun:
    """The run in a storage. Its files are listed once, at construction."""

    def __init__(self, storage: Storage, report: Report) -> None:
        self.storage = storage
        self.ended = _END in storage.list("")
        self._report = report
        self._steps: dict[str, dict[int, StepFiles]] = {}
        for path in storage.list_after("index"):
            self._add_file(path, "index", ".json")
        for path in storage.list_after("events"):
            self._add_file(path, "events", ".tfevents")
        self.collections = self._read_collections()

    def _add_file(self, path: str, kind: str, suffix: str) -> None:
        found = _STEP_FILE.fullmatch(path.rpartition("/")[2])
        if found and path.endswith(suffix):
            step, worker = int(found[1]), found[2]
            files = self._steps.setdefault(worker, {}).setdefault(step, StepFiles(worker, step))
            setattr(files, kind, path)

    @property
    def workers(self) -> list[str]:
        """All workers that left a file."""
        return sorted({*self._steps, *self.collections})

    @property
    def num_workers(self) -> int:
        """The number of workers that the job had; some may have left no file."""
        return max([len(self.workers), *(each.num_workers for each in self.collections.values())])

    def steps(self, worker: str) -> list[StepFiles]:
        """Return the steps of a worker, ascending."""
        return [files for _, files in sorted(self._steps.get(worker, {}).items())]

    def _read_collections(self) -> dict[str, WorkerCollections]:
        found: dict[str, WorkerCollections] = {}
        for path in self.storage.list_after("collections"):
            name = path.rpartition("/")[2]
            if name.endswith(_COLLECTIONS_FILE):
                try:
                    found[name.removesuffix(_COLLECTIONS_FILE)] = self._parse_collections(path)
                except (*_NOT_AS_EXPECTED, ValueError) as exc:
                    self._report(CorruptFile(path, f"the collections of a worker are damaged: {exc}"))
        return found

    def _parse_collections(self, path: str) -> WorkerCollections:
        document = json.loads(self.storage.read(path))
        num_workers = (document.get("_meta") or {}).get("num_workers") or 1
        if int(num_workers) > _MOST_WORKERS:
            raise ValueError(f"they name {num_workers} workers")
        described = document.get("collections") or {}
        collections = [self._collection(path, name, each) for name, each in described.items()]
        return WorkerCollections(int(num_workers), collections)

    def _collection(self, path: str, name: str, document: Mapping[str, Any]) -> Collection:
        """Return the collection with its valid settings. An invalid setting is reported and left out."""
        collection = Collection(name, tensor_names=[str(each) for each in document.get("tensor_names") or ()])
        histogram = document.get("save_histogram")
        collection.save_histogram = histogram if isinstance(histogram, bool) else None
        settings: list[Callable[[], None]] = [
            *(partial(collection.include, regex) for regex in document.get("include_regex") or ()),
            lambda: setattr(collection, "reduction_config", _reduction_config(document.get("reduction_config"))),
            lambda: setattr(collection, "save_config", _save_config(document.get("save_config"))),
        ]
        for setting in settings:
            try:
                setting()
            except ConfigurationError as exc:
                self._report(CorruptFile(path, f"collection {name!r} has a setting that is left out: {exc}"))
        return collection


def parse_index(data: bytes) -> StepIndex:
    """Parse an index file. Raises ValueError if it is not one."""
    try:
        document = json.loads(data)
        meta = document["meta"]
        mode_step = int(meta["mode_step"])
        if not 0 <= mode_step < _MOST:
            raise ValueError(f"step {mode_step} of a mode")
        payload = {int(each["start_idx"]): str(each["tensorname"]) for each in document.get("tensor_payload") or ()}
        shapes = {str(each["tensorname"]): _shape(each["shape"]) for each in document.get("shape_payload") or ()}
        return StepIndex(ModeKeys.parse(meta["mode"]), mode_step, dict(sorted(payload.items())), shapes)
    except _NOT_AS_EXPECTED as exc:
        raise ValueError(f"{type(exc).__name__}: {exc}") from exc


def parse_reduction(name: str) -> tuple[str, str] | None:
    """Return the statistic and the tensor of `smdebug/reductions/abs_max/conv1.weight`, or None for another name."""
    statistic, slash, tensor = name.removeprefix(_REDUCTIONS).partition("/")
    if not name.startswith(_REDUCTIONS) or not slash:
        return None
    try:
        return parse_statistic(statistic), tensor
    except ConfigurationError:
        return None


def runs_below(storage: Storage) -> list[str]:
    """Return the folders below a storage that are runs of smdebug, sorted."""
    found = (_RUN_FILE.fullmatch(file.path) for file in storage.walk())
    return sorted({each["run"] for each in found if each and each["run"]})


def is_smdebug_run(storage: Storage) -> bool:
    """Return whether a folder has the layout of a run of smdebug."""
    return any(each.isdecimal() for folder in ("collections", "events") for each in storage.list(folder))


def _shape(sizes: Iterable[Any]) -> tuple[int, ...]:
    shape = tuple(int(size) for size in sizes)
    if any(not 0 <= size < _MOST for size in shape):
        raise ValueError(f"the shape {shape}")
    return shape


def _reduction_config(document: Mapping[str, Any] | None) -> ReductionConfig | None:
    if not document:
        return None
    kept = {key: document[key] for key in ("save_raw_tensor", "save_shape") if document.get(key) is not None}
    return ReductionConfig.from_names(document.get("reductions"), **kept)


def _save_config(document: Mapping[str, Any] | None) -> SaveConfig | None:
    """Return the configuration. A null mode has the default, which is the same in smdebug and here."""
    known = {mode: config for mode, config in (document or {}).items() if config is not None}
    return SaveConfig(mode_save_configs=known) if known else None
