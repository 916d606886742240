"""A run, opened for reading: which tensors, steps, modes, workers and collections there are, and their values."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from .availability import StepState, step_state
from .catalogue import Catalogue, StepRange, collection_row
from .collection import Collection, CollectionKeys
from .dtypes import Array
from .errors import (
    ConfigurationError,
    FileError,
    InvalidWorker,
    MissingCollectionFiles,
    NoMoreData,
    NotARun,
    RunNotFound,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from .index import SavedTensor
from .mode import ModeKeys
from .schema import COLLECTIONS, RUN_FILE, RunInfo
from .storage import Storage, open_storage
from .tensor import Tensor
from .values import read_values
from .workers import Workers, natural

if TYPE_CHECKING:
    import duckdb

GLOBAL = ModeKeys.GLOBAL
_POLL_SECONDS = 0.05
_ENDED_GLANCE_SECONDS = 1.0
_LOCAL_CLAIMS_SECONDS = 1.0
_REMOTE_CLAIMS_SECONDS = 10.0
_INCOMPLETE_STEP_WINDOW = "SMDEBUG_INCOMPLETE_STEP_WAIT_WINDOW"


def create_trial(
    path: str | os.PathLike[str],
    name: str | None = None,
    range_steps: StepRange | None = None,
    *,
    timeout: float | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **ignored: Any,
) -> Trial:
    """Open the run at `path`, a folder or an fsspec URL such as `s3://bucket/run`.

    `name` defaults to the last part of the path. `range_steps` (a, b) restricts the trial to global steps a <= s < b;
    None for either leaves that side open. `timeout` waits so many seconds for a run to appear; without it, a path with
    no run is an error at once. `storage_options` go to fsspec. Further arguments that smdebug knew (`parallel`,
    `check`, `index_mode`, `cache`, `profiler`, `output_dir`) are accepted and have no effect.

    Raises RunNotFound, NotARun, MissingCollectionFiles (a run whose training has not begun), UnknownFormat.
    """
    unknown = set(ignored) - {"parallel", "check", "index_mode", "cache", "profiler", "output_dir"}
    if unknown:
        raise TypeError(f"create_trial() got an unexpected argument {sorted(unknown)[0]!r}")
    storage = open_storage(path, storage_options)
    info = _wait_for_run(storage, timeout)
    return Trial(storage, info, name or storage.url.rpartition("/")[2], range_steps)


class Trial:
    """A run, read while it is being written or after. Made by `create_trial`.

    Each question first looks for new data (see `no_refresh` to stop that). Step numbers count in the `mode` given with
    them; GLOBAL, the default, counts over all modes.
    """

    def __init__(self, storage: Storage, info: RunInfo, name: str, range_steps: StepRange | None = None) -> None:
        self.name = name
        self.path = storage.url
        self.info = info
        self.range_steps = _checked_range(range_steps)
        self._storage = storage
        self._workers = Workers(storage)
        self._catalogue = Catalogue(storage, self.range_steps)
        self._window = int(os.environ.get(_INCOMPLETE_STEP_WINDOW, 1000))
        self._refreshing = True
        self._lock = threading.RLock()
        self._ended_at: float | None = None
        self._claims_seconds = _LOCAL_CLAIMS_SECONDS if storage.is_local else _REMOTE_CLAIMS_SECONDS
        self._claims_read_at = time.monotonic()
        self._refresh()

    # What there is.

    def tensor(self, tname: str) -> Tensor:
        """The tensor of that name. Raises TensorUnavailable, with names that are near."""
        if not self.has_tensor(tname):
            raise TensorUnavailable(tname, self._nearest(tname))
        return Tensor(tname, self)

    def has_tensor(self, tname: str) -> bool:
        self._look()
        return tname in self._all_names()

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
        self._look()
        mode = ModeKeys.parse(mode)
        rows = self._catalogue.ask("tensor_names", mode=mode.name) if step is None else self._names_at(step, mode)
        if patterns is not None:
            rows = [row for row in rows if any(pattern.search(row[0]) for pattern in patterns)]
        if collection is not None:
            rows = [row for row in rows if _belongs(row[0], row[1], collection)]
        return list(dict.fromkeys(name for name, _ in rows))

    def workers(self) -> list[str]:
        """The workers that saved anything, in natural order."""
        self._look()
        return sorted((worker for (worker,) in self._catalogue.ask("workers")), key=natural)

    @property
    def num_workers(self) -> int:
        """How many workers the job has, whether or not they have saved anything yet."""
        self._look()
        return self._workers.num_workers

    def steps(self, mode: ModeKeys = GLOBAL, show_incomplete_steps: bool = False) -> list[int]:
        """The steps at which anything was saved, ascending; complete ones only, unless told otherwise.

        A step is complete when every worker wrote it, when a later step is complete, or when the job has ended.
        """
        self._look()
        steps, complete = self._states(mode)
        return [step for step, whole in zip(steps, complete, strict=True) if whole or show_incomplete_steps]

    def modes(self) -> list[ModeKeys]:
        """The modes in which anything was saved."""
        self._look()
        seen = {mode for mode, _, _ in self._catalogue.ask("step_modes")}
        return [mode for mode in ModeKeys if mode.name in seen]

    def global_step(self, mode: ModeKeys, mode_step: int) -> int:
        """The global step of a step of `mode`. Raises StepUnavailable or StepNotYetAvailable."""
        mode = ModeKeys.parse(mode)
        self._look()
        if mode is GLOBAL:
            self._mode_of(mode_step)
            return mode_step
        steps = self._global_steps(mode)
        if mode_step not in steps:
            raise self._no_step(mode_step, mode)
        return steps[mode_step]

    def mode_step(self, global_step: int) -> int:
        """The step, counted in its own mode, of a global step."""
        return self._mode_of(global_step)[1]

    def mode(self, global_step: int) -> ModeKeys:
        """The mode of a global step."""
        return self._mode_of(global_step)[0]

    def collections(self) -> dict[str, Collection]:
        """What the hook was told to group, by name, whether or not it was saved. `tensor_names` of each are those that
        it was given, and those that were saved as part of it."""
        self._look()
        found: dict[str, Collection] = {}
        for info in self._workers.infos:
            for document in info.collections:
                collection = Collection.from_json(document)
                if collection.name in found:
                    found[collection.name].add_tensor_names(collection.tensor_names)
                else:
                    found[collection.name] = collection
        for name, member_of in self._catalogue.ask("tensor_names", mode=GLOBAL.name):
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
        return {**self._workers.damaged, **self._catalogue.damaged}

    # Waiting.

    def has_passed_step(self, step: int, mode: ModeKeys = GLOBAL) -> StepState:
        """Whether a step is there, may still come, or never will."""
        self._look()
        return self._state(step, mode)

    def wait_for_steps(
        self, required_steps: Iterable[int], mode: ModeKeys = GLOBAL, timeout: float | None = None
    ) -> None:
        """Return once every one of the steps is there.

        Raises StepUnavailable for a step that was skipped, NoMoreData for one past the end of an ended job, and
        StepNotYetAvailable when `timeout` seconds have passed.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        for step in required_steps:
            while (state := self._state_now(step, mode)) is StepState.NOT_YET_AVAILABLE:
                if deadline is not None and time.monotonic() >= deadline:
                    raise StepNotYetAvailable(step, mode)
                time.sleep(_POLL_SECONDS)
            if state is StepState.UNAVAILABLE:
                raise self._no_step(step, mode)

    def loaded_all_steps(self) -> bool:
        """Whether the job has ended, so that what is seen is all there will be."""
        self._look()
        return self._workers.job_ended

    job_finished = loaded_all_steps

    def mark_ended(self) -> None:
        """Say that no worker will write any more, after a crash that left no end mark. The run remembers it."""
        self._workers.mark_ended()
        self.refresh()

    # Many values, and SQL.

    def values(
        self,
        names: Iterable[str],
        steps: Iterable[int] | None = None,
        mode: ModeKeys = GLOBAL,
        worker: str | None = None,
    ) -> dict[str, dict[int, Array]]:
        """Raw values of many tensors at many steps, read together: `{name: {step: array}}`.

        What was not saved raw at a step is left out. `steps` defaults to all. Raises TensorUnavailable for a name that
        was saved at no step.
        """
        self._look()
        names = list(dict.fromkeys(names))
        for name in names:
            if name not in self._all_names():
                raise TensorUnavailable(name, self._nearest(name))
        rows = [
            (name, step, row)
            for name, by_step in self._rows_of(names, mode, worker, steps).items()
            for step, row in by_step.items()
            if row.has_raw
        ]
        found: dict[str, dict[int, Array]] = {name: {} for name in names}
        for (name, step, _), array in zip(rows, self._read([row for *_, row in rows]), strict=True):
            found[name][step] = array
        return found

    def sql(self, query: str, parameters: dict[str, Any] | None = None) -> duckdb.DuckDBPyRelation:
        """The answer to one SELECT on the views `tensors`, `reductions`, `scalars`, `steps`, `collections` and
        `tensor_values`, as a DuckDB relation: `.df()`, `.pl()`, `.fetchall()`, or printed as it is.

        `parameters` fill `$name` in the query. Nothing but the run can be read, and nothing written; QueryRefused.
        """
        self._look()
        if parameters is not None and not isinstance(parameters, dict):
            raise ConfigurationError("parameters is a dictionary; write $name in the query")
        return self._catalogue.sql(query, parameters)

    # Refreshing.

    def refresh(self) -> None:
        """Look for new data now, whether or not questions do so by themselves."""
        self._refresh(claims=True)

    def _refresh(self, claims: bool = False) -> None:
        """Look who writes and what is new. A claim changes when its worker resumes the run after a crash, or saves
        other collections; nothing tells of it, so claims are read again now and then, and with `claims` in any case."""
        with self._lock:
            now = time.monotonic()
            self._ended_at = now if self._workers.job_ended else None
            first = self._catalogue.version == 0
            changed = self._workers.refresh()
            grown = self._catalogue.refresh([info.worker for info in self._workers.infos])
            if grown or claims or now - self._claims_read_at > self._claims_seconds:
                self._claims_read_at = now
                changed = self._workers.reread() or changed
            if changed and not grown:
                self._catalogue.changed()
            if changed or first:
                self._set_collections()

    def _set_collections(self) -> None:
        self._catalogue.set_collections(
            [
                collection_row(info.worker, info.include_collections, dict(document))
                for info in self._workers.infos
                for document in info.collections
            ]
        )

    @contextmanager
    def refreshing(self, wanted: bool) -> Iterator[None]:
        """Whether questions look for new data, inside the block; what was before is restored after it."""
        before, self._refreshing = self._refreshing, wanted
        try:
            yield
        finally:
            self._refreshing = before

    def close(self) -> None:
        """Release the catalogue's memory. The trial answers nothing afterwards."""
        self._catalogue.close()

    def __repr__(self) -> str:
        return f"Trial({self.name!r}, path={self.path!r})"

    # Between Tensor and the catalogue.

    def _look(self) -> None:
        # An ended job changes only if it is resumed: a glance now and then is enough, and spares the listings.
        if self._refreshing and not (self._ended_at and time.monotonic() - self._ended_at < _ENDED_GLANCE_SECONDS):
            self._refresh()

    def _states(self, mode: ModeKeys) -> tuple[list[int], list[bool]]:
        """All steps of a mode, ascending, and which of them are complete."""
        mode = ModeKeys.parse(mode)

        def ask() -> tuple[list[int], list[bool]]:
            rows = self._catalogue.ask(
                "step_states",
                mode=mode.name,
                num_workers=self._workers.num_workers,
                session_start=self._workers.session_start,
                job_ended=self._workers.job_ended,
                window=self._window,
            )
            return [step for step, _ in rows], [complete for _, complete in rows]

        return self._catalogue.derived(("states", mode), ask)

    def _state(self, step: int, mode: ModeKeys) -> StepState:
        return step_state(step, *self._states(mode), self._workers.job_ended)

    def _state_now(self, step: int, mode: ModeKeys) -> StepState:
        # Waiting without looking would be for ever.
        self._refresh()
        return self._state(step, mode)

    def _no_step(self, step: int, mode: ModeKeys) -> StepUnavailable | StepNotYetAvailable | NoMoreData:
        if self._state(step, mode) is StepState.NOT_YET_AVAILABLE:
            return StepNotYetAvailable(step, mode)
        steps, _ = self._states(mode)
        if self._workers.job_ended and (not steps or step > steps[-1]):
            return NoMoreData(step, mode, steps[-1] if steps else None)
        return StepUnavailable(step, mode)

    def _global_steps(self, mode: ModeKeys) -> dict[int, int]:
        """The global step of each step of a mode."""

        def ask() -> dict[int, int]:
            rows = self._catalogue.ask("step_modes")
            return {step: global_step for name, step, global_step in rows if name == mode.name}

        return self._catalogue.derived(("global_steps", mode), ask)

    def _mode_of(self, global_step: int) -> tuple[ModeKeys, int]:
        def ask() -> dict[int, tuple[ModeKeys, int]]:
            return {step: (ModeKeys[name], int(in_mode)) for name, in_mode, step in self._catalogue.ask("step_modes")}

        self._look()
        modes = self._catalogue.derived(("modes",), ask)
        if global_step not in modes:
            raise self._no_step(global_step, GLOBAL)
        return modes[global_step]

    def _names_at(self, step: int, mode: ModeKeys) -> list[tuple[Any, ...]]:
        """The names at a step with their collections. Most steps hold the same set of names: it is asked for once."""

        def ask() -> dict[int, list[int]]:
            found: dict[int, list[int]] = {}
            for each, name_set in self._catalogue.ask("step_name_sets", mode=mode.name):
                found.setdefault(each, []).append(name_set)
            return found

        sets = self._catalogue.derived(("name_sets", mode), ask).get(step, [])
        rows = [row for name_set in sets for row in self._catalogue.ask("names_of_set", name_set=name_set)]
        return rows if len(sets) < 2 else sorted(rows)

    def _all_names(self) -> dict[str, None]:
        def ask() -> dict[str, None]:
            return dict.fromkeys(name for name, _ in self._catalogue.ask("tensor_names", mode=GLOBAL.name))

        return self._catalogue.derived(("names",), ask)

    def _nearest(self, tname: str) -> str:
        near = get_close_matches(tname, self._all_names(), n=3)
        return f"did you mean {' or '.join(map(repr, near))}?" if near else ""

    def _tensor_steps(self, name: str, mode: ModeKeys, show_incomplete_steps: bool) -> list[int]:
        self._look()
        mode = ModeKeys.parse(mode)
        saved = self._catalogue.ask("tensor_steps", name=name, mode=mode.name)
        steps, complete = self._states(mode)
        # The complete steps are the first ones.
        last = steps[whole - 1] if (whole := sum(complete)) else -1
        return [step for (step,) in saved if show_incomplete_steps or step <= last]

    def _rows_at(self, name: str, step: int, mode: ModeKeys, statistics: bool = False) -> list[SavedTensor]:
        """What each worker saved of a tensor at a step, in natural order of the workers. Raises if there is nothing."""
        self._look()
        mode = ModeKeys.parse(mode)
        global_step = step if mode is GLOBAL else self._global_steps(mode).get(step)
        rows = [] if global_step is None else self._catalogue.rows(name, global_step, statistics)
        if not rows:
            raise self._not_at_step(name, step, mode)
        return sorted(rows, key=_by_worker) if len(rows) > 1 else rows

    def _row(self, name: str, step: int, mode: ModeKeys, worker: str | None, statistics: bool = False) -> SavedTensor:
        rows = self._rows_at(name, step, mode, statistics)
        if worker is None:
            return rows[0]
        for row in rows:
            if row.worker == worker:
                return row
        raise InvalidWorker(worker, [row.worker for row in rows])

    def _not_at_step(self, name: str, step: int, mode: ModeKeys) -> Exception:
        state = self._state(step, mode)
        if state is StepState.NOT_YET_AVAILABLE:
            return StepNotYetAvailable(step, mode)
        if state is StepState.UNAVAILABLE:
            return StepUnavailable(step, mode)
        return TensorUnavailableForStep(name, step, mode)

    def _rows_of(
        self, names: Sequence[str], mode: ModeKeys, worker: str | None, steps: Iterable[int] | None = None
    ) -> dict[str, dict[int, SavedTensor]]:
        """What was saved of some tensors, by name and step; of one worker, or at each step of the first that has it."""
        mode = ModeKeys.parse(mode)
        wanted = None if steps is None else set(steps)
        rows = self._all_rows(names, mode, wanted)
        if worker is not None:
            known = {row.worker for row in rows}
            if worker not in known:
                raise InvalidWorker(worker, sorted(known, key=natural))
            rows = [row for row in rows if row.worker == worker]
        if mode is not GLOBAL:
            rows = [row for row in rows if row.mode == mode.name]
        if len({row.worker for row in rows}) > 1:
            rows = sorted(rows, key=_by_worker)
        found: dict[str, dict[int, SavedTensor]] = {name: {} for name in names}
        for row in rows:
            step = row.global_step if mode is GLOBAL else row.mode_step
            if wanted is None or step in wanted:
                found[row.name].setdefault(step, row)
        return {name: dict(sorted(by_step.items())) for name, by_step in found.items()}

    def _all_rows(self, names: Sequence[str], mode: ModeKeys, wanted: set[int] | None) -> list[SavedTensor]:
        if wanted is None or len(wanted) >= len(names):
            return self._catalogue.steps_of_tensors(names) if names else []
        # A few steps of many tensors: step by step.
        global_steps = wanted if mode is GLOBAL else {self._global_steps(mode).get(step, -1) for step in wanted}
        return [row for step in sorted(global_steps) for name in names for row in self._catalogue.rows(name, step)]

    def _rows_at_step(self, global_step: int) -> dict[str, list[SavedTensor]]:
        return self._catalogue.rows_of_step(global_step)

    def _saved_row(self, name: str, global_step: int, worker: str) -> SavedTensor | None:
        rows = self._catalogue.rows(name, global_step, statistics=True)
        return next((row for row in rows if row.worker == worker), None)

    def _steps_since(self, file_id: int) -> list[tuple[Any, ...]]:
        return self._catalogue.ask("steps_since", after=file_id)

    def _name_sets_since(self, name_set: int) -> list[tuple[Any, ...]]:
        return self._catalogue.ask("name_sets_since", after=name_set)

    @property
    def _version(self) -> int:
        return self._catalogue.version

    def _read(self, rows: Sequence[SavedTensor]) -> list[Array]:
        return read_values(self._storage, rows)


def _wait_for_run(storage: Storage, timeout: float | None) -> RunInfo:
    deadline = time.monotonic() + (timeout or 0)
    while True:
        try:
            return _run_info(storage)
        except (RunNotFound, MissingCollectionFiles):
            if time.monotonic() >= deadline:
                raise
        time.sleep(_POLL_SECONDS)


def _run_info(storage: Storage) -> RunInfo:
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


def _belongs(name: str, collections: list[str], wanted: Collection | str) -> bool:
    if wanted == CollectionKeys.ALL:
        return True
    if isinstance(wanted, str):
        return wanted in collections
    return wanted.name in collections or wanted.matches(name)


def _by_worker(row: SavedTensor) -> list[tuple[int, int | str]]:
    return natural(row.worker)
