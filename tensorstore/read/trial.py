"""A run, opened for reading: which tensors, steps, modes, workers and collections there are, and their values."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from ..config.collection import Collection, CollectionKeys
from ..dtypes import Array
from ..engines.base import Answer, Engine
from ..errors import (
    ConfigurationError,
    FileError,
    MissingCollectionFiles,
    NotARun,
    RunNotFound,
    StepNotYetAvailable,
)
from ..format.schema import COLLECTIONS, RUN_FILE, RunInfo
from ..mode import ModeKeys
from ..storage.open import Storage, open_storage
from .late_worker import LateWorker
from .run_reader import RunReader
from .step_state import StepState
from .tensor import Tensor
from .views import StepRange
from .waiting import Waiting
from .workers import natural

GLOBAL = ModeKeys.GLOBAL
_POLL_SECONDS = 0.05


def create_trial(
    path: str | os.PathLike[str],
    name: str | None = None,
    range_steps: StepRange | None = None,
    *,
    timeout: float | None = None,
    storage_options: Mapping[str, Any] | None = None,
    engine: Engine | None = None,
    **ignored: Any,
) -> Trial:
    """Open the run at `path`, a folder or an fsspec URL such as `s3://bucket/run`.

    `name` defaults to the last part of the path. `range_steps` (a, b) restricts the trial to global steps a <= s < b;
    None for either leaves that side open. `timeout` waits so many seconds for a run to appear; without it, a path with
    no run is an error at once. `storage_options` go to fsspec. `engine` answers what is asked of
    the catalogue and by SQL: DuckDB, or for instance a SparkEngine. Further arguments that smdebug knew (`parallel`,
    `check`, `index_mode`, `cache`, `profiler`, `output_dir`) are accepted and have no effect.

    Raises RunNotFound, NotARun, MissingCollectionFiles (a run whose training has not begun), UnknownFormat.
    """
    unknown = set(ignored) - {"parallel", "check", "index_mode", "cache", "profiler", "output_dir"}
    if unknown:
        raise TypeError(f"create_trial() got an unexpected argument {sorted(unknown)[0]!r}")
    storage = open_storage(path, storage_options)
    info = _wait_for_run(storage, timeout)
    return Trial(storage, info, name or storage.url.rpartition("/")[2], range_steps, engine)


class Trial:
    """A run, read while it is being written or after. Made by `create_trial`.

    It can be used in forked processes, pickled for others, and copied: each opens the run again, with the same options.

    Each question first looks for new data (see `no_refresh` to stop that). Step numbers count in the `mode` given with
    them; GLOBAL, the default, counts over all modes.
    """

    def __init__(
        self,
        storage: Storage,
        info: RunInfo,
        name: str,
        range_steps: StepRange | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.name = name
        self.path = storage.url
        self.info = info
        self.range_steps = _checked_range(range_steps)
        self._reader = RunReader(storage, name, self.range_steps, engine)

    # What there is.

    def tensor(self, tname: str) -> Tensor:
        """The tensor of that name. Raises TensorUnavailable, with names that are near."""
        self._reader.check_name(tname)
        return Tensor(tname, self._reader)

    def has_tensor(self, tname: str) -> bool:
        return self._reader.has_name(tname)

    def tensor_names(
        self,
        show_prefixed_tensors: bool = False,
        *,
        step: int | None = None,
        mode: ModeKeys = GLOBAL,
        regex: str | Iterable[str] | None = None,
        collection: Collection | str | None = None,
    ) -> list[str]:
        """Names of saved tensors, sorted: at any step or at one, in any mode or in one, that match any of the regular
        expressions (`re.search`) or belong to a collection, whichever is given.

        `show_prefixed_tensors` is accepted for smdebug's sake; no name here has a prefix. Raises ConfigurationError
        for a regular expression that does not compile, or when both `regex` and `collection` are given.
        """
        if regex is not None and collection is not None:
            raise ConfigurationError("tensor_names takes regex or collection, not both")
        patterns = None if regex is None else _patterns(regex)
        rows = self._reader.tensors(ModeKeys.parse(mode), step)
        if patterns is not None:
            rows = [row for row in rows if any(pattern.search(row[0]) for pattern in patterns)]
        if collection is not None:
            rows = [row for row in rows if _belongs(row[0], row[1], collection)]
        return list(dict.fromkeys(name for name, _ in rows))

    def workers(self) -> list[str]:
        """The workers that saved anything, in natural order."""
        return self._reader.worker_names()

    @property
    def num_workers(self) -> int:
        """How many workers the job has, whether or not they have saved anything yet."""
        return self._reader.num_workers()

    def steps(self, mode: ModeKeys = GLOBAL, show_incomplete_steps: bool = False) -> list[int]:
        """The steps at which anything was saved, ascending; complete ones only, unless told otherwise.

        A step is complete when every worker wrote it, when a later step is complete, or when the job has ended.
        """
        return self._reader.steps(mode, show_incomplete_steps)

    def modes(self) -> list[ModeKeys]:
        """The modes in which anything was saved."""
        saved = self._reader.modes()
        return [mode for mode in ModeKeys if mode in saved]

    def global_step(self, mode: ModeKeys, mode_step: int) -> int:
        """The global step of a step of `mode`. Raises StepUnavailable or StepNotYetAvailable."""
        return self._reader.global_step(mode_step, ModeKeys.parse(mode))

    def mode_step(self, global_step: int) -> int:
        """The step, counted in its own mode, of a global step."""
        return self._reader.step_info(global_step).mode_step

    def mode(self, global_step: int) -> ModeKeys:
        """The mode of a global step."""
        return self._reader.step_info(global_step).mode

    def collections(self) -> dict[str, Collection]:
        """What the hook was told to group, by name, whether or not it was saved. `tensor_names` of each are those that
        it was given, and those that were saved as part of it."""
        found: dict[str, Collection] = {}
        for collection in self._reader.collections():
            if collection.name in found:
                found[collection.name].add_tensor_names(collection.tensor_names)
            else:
                found[collection.name] = collection
        for name, member_of in self._reader.tensors(GLOBAL):
            for each in (*member_of, CollectionKeys.ALL):
                if each in found:
                    found[each].add_tensor_names([name])
        return found

    def collection(self, coll_name: str) -> Collection:
        """One collection. Raises ConfigurationError naming those there are."""
        collections = self.collections()
        if coll_name not in collections:
            raise ConfigurationError(f"no collection {coll_name!r}; there are {', '.join(sorted(collections))}")
        return collections[coll_name]

    @property
    def damaged(self) -> dict[str, FileError]:
        """Files of the run that could not be read, and why. Everything else is there."""
        return self._reader.damaged

    # Waiting.

    def has_passed_step(self, step: int, mode: ModeKeys = GLOBAL) -> StepState:
        """Whether a step is there, may still come, or never will."""
        return self._reader.state(step, mode)

    def wait_for_steps(
        self, required_steps: Iterable[int], mode: ModeKeys = GLOBAL, timeout: float | None = None
    ) -> None:
        """Return once every one of the steps is there.

        While it waits for long, it logs which worker it waits for; see `late_workers`.

        Raises StepUnavailable for a step that was skipped, NoMoreData for one past the end of an ended job, and
        StepNotYetAvailable when `timeout` seconds have passed, and at once in the thread that trains, which has not
        come to the step and would wait for itself.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        waiting = Waiting(self._reader)
        for step in required_steps:
            while (state := self._reader.state_now(step, mode)) is StepState.NOT_YET_AVAILABLE:
                if self._reader.waits_for_itself(step, mode):
                    raise StepNotYetAvailable(step, mode, "this thread writes the run, and would wait for itself")
                if deadline is not None and time.monotonic() >= deadline:
                    raise StepNotYetAvailable(step, mode, waiting.reason)
                waiting.tick()
                time.sleep(_POLL_SECONDS)
            if state is StepState.UNAVAILABLE:
                raise self._reader.no_step(step, mode)

    def loaded_all_steps(self) -> bool:
        """Whether the job has ended, so that what is seen is all there will be."""
        return self._reader.has_ended()

    job_finished = loaded_all_steps

    def late_workers(self) -> list[LateWorker]:
        """Return the workers that the newest saved steps wait for, in natural order, each with its last step and time.

        With `include_workers="all"` a step is complete when every worker has saved it. A worker that runs is late by a
        flush or two; one that was killed is late until `mark_ended(worker=…)`. Empty once the job has ended.
        """
        return self._reader.late_workers()

    def mark_ended(self, worker: str | None = None) -> None:
        """Record in the run that the job, or one `worker` of it, will write no more, after a crash without an end mark.

        The steps that a worker lacks are then complete without it. What has ended by itself stays as it is.

        Raises:
            InvalidWorker: the job has no such worker.
        """
        self._reader.mark_ended(worker)

    # Many values, and SQL.

    def values(
        self,
        names: Iterable[str],
        steps: Iterable[int] | None = None,
        mode: ModeKeys = GLOBAL,
        worker: str | None = None,
    ) -> dict[str, dict[int, Array]]:
        """Raw values of many tensors at many steps, read together: `{name: {step: array}}`.

        What was not saved raw at a step is left out. `steps` defaults to all. Values of up to 64 kB lie together in
        pieces of memory of up to 4 MB, each of which stays as long as one of its arrays does: copy an array to keep it
        alone. Raises TensorUnavailable for a name that was saved at no step.
        """
        return self._reader.values(list(dict.fromkeys(names)), steps, mode, worker)

    def inputs(self, step: int, mode: ModeKeys = GLOBAL, worker: str | None = None) -> list[Array]:
        """What went into the model at a step: the raw values of the collection `inputs`, in the order of their names'
        numbers; empty if none were saved. Raises what `Tensor.value` raises."""
        return self._values_in(CollectionKeys.INPUTS, step, mode, worker)

    def labels(self, step: int, mode: ModeKeys = GLOBAL, worker: str | None = None) -> list[Array]:
        """The raw values of the collection `labels` at a step; see `inputs`."""
        return self._values_in(CollectionKeys.LABELS, step, mode, worker)

    def predictions(self, step: int, mode: ModeKeys = GLOBAL, worker: str | None = None) -> list[Array]:
        """The raw values of the collection `predictions` at a step; see `inputs`."""
        return self._values_in(CollectionKeys.PREDICTIONS, step, mode, worker)

    def _values_in(self, collection: str, step: int, mode: ModeKeys, worker: str | None) -> list[Array]:
        names = sorted(self.tensor_names(step=step, mode=mode, collection=collection), key=natural)
        if not names and self.has_passed_step(step, mode) is not StepState.AVAILABLE:
            raise self._reader.no_step(step, mode)
        return [self.tensor(name).value(step, mode, worker) for name in names]

    def sql(self, query: str, parameters: dict[str, Any] | None = None, timeout: float | None = None) -> Answer:
        """The answer to one SELECT on the views `tensors`, `reductions`, `scalars`, `steps`, `collections` and
        `tensor_values`, as rows: `.fetchall()`, `.df()`, `.pl()`, `.arrow()`, iterated over, or printed as they
        are. Every engine's answer has `columns`, `fetchall()`, `df()` and `to_arrow_table()`.

        `parameters` fill `$name` in the query. `timeout` is how many seconds the engine may run each time that rows are
        taken; QueryTimeout. Nothing but the run can be read, and nothing written; QueryRefused.
        """
        return self._reader.sql(query, parameters, timeout)

    # Refreshing.

    def refresh(self) -> None:
        """Look for new data now, whether or not questions do so by themselves."""
        self._reader.refresh(claims=True)

    @contextmanager
    def refreshing(self, wanted: bool) -> Iterator[None]:
        """Whether questions look for new data, inside the block; what was before is restored after it."""
        with self._reader.refreshing(wanted):
            yield

    def close(self) -> None:
        """Release the catalogue's memory. The trial answers nothing afterwards."""
        self._reader.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy, here or in another process, opens the run again: a catalogue belongs to one process.
        reader = self._reader
        return _reopened, (reader.storage, self.name, self.range_steps, reader.engine, reader.is_refreshing)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Trial({self.name!r}, path={self.path!r})"


def run_reader_of(trial: Trial) -> RunReader:
    """Return the gateway that a trial reads through, for rules and exports."""
    return trial._reader  # noqa: SLF001  the one way in


def _reopened(
    storage: Storage, name: str, range_steps: StepRange | None, engine: Engine | None, refreshing: bool
) -> Trial:
    trial = Trial(storage, run_info(storage), name, range_steps, engine)
    run_reader_of(trial).is_refreshing = refreshing
    return trial


def _wait_for_run(storage: Storage, timeout: float | None) -> RunInfo:
    deadline = time.monotonic() + (timeout or 0)
    while True:
        try:
            return run_info(storage)
        except (RunNotFound, MissingCollectionFiles):
            if time.monotonic() >= deadline:
                raise
        time.sleep(_POLL_SECONDS)


def run_info(storage: Storage) -> RunInfo:
    """What the run at this place is. Raises RunNotFound, NotARun, MissingCollectionFiles, UnknownFormat."""
    try:
        info = RunInfo.from_bytes(storage.read(RUN_FILE), storage.url)
    except FileNotFoundError as exc:
        if not storage.exists_any():
            raise RunNotFound(storage.url, "there is no run here; create_trial(..., timeout=60) waits for one") from exc
        raise NotARun(storage.url, _what_else(storage)) from exc
    if not storage.list(COLLECTIONS):
        raise MissingCollectionFiles(storage.url, "the run has no collections: no worker has begun to save")
    return info


def _what_else(storage: Storage) -> str:
    # smdebug numbers the folders of its collections.
    if any(name.isdecimal() for name in storage.list(COLLECTIONS)):
        return (
            "smdebug wrote this run. Import it with `tensortrial import smdebug SOURCE TARGET`, or with "
            "tensortrial.importers.smdebug.import_run(source, target), and open the target"
        )
    return f"there are files here, but no {RUN_FILE}: this is not a run of tensortrial"


def _checked_range(range_steps: StepRange | None) -> StepRange | None:
    if range_steps is None:
        return None
    first, end = range_steps
    if first is not None and end is not None and first >= end:
        raise ConfigurationError(f"range_steps=({first}, {end}) is empty: it means {first} <= step < {end}")
    return first, end


def _patterns(regex: str | Iterable[str]) -> list[re.Pattern[str]]:
    found = []
    for text in [regex] if isinstance(regex, str) else regex:
        try:
            found.append(re.compile(text))
        except re.error as exc:
            raise ConfigurationError(f"{text!r} is not a regular expression: {exc}") from exc
    return found


def _belongs(name: str, collections: Sequence[str], wanted: Collection | str) -> bool:
    if wanted == CollectionKeys.ALL:
        return True
    if isinstance(wanted, str):
        return wanted in collections
    return wanted.name in collections or wanted.matches(name)
