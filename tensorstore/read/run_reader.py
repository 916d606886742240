"""The gateway to a run: it refreshes by itself, and returns the run's steps, names, rows and values."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from .. import forking
from ..config.collection import Collection
from ..config.reduction_config import boolean
from ..dtypes import Array
from ..engines.base import Answer, Engine
from ..errors import (
    ConfigurationError,
    CorruptFile,
    FileError,
    InvalidCollectionConfiguration,
    InvalidWorker,
    RunClosed,
    RunNotFound,
    SnapshotNotFound,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from ..format.chunk_reader import read_values
from ..format.index_types import SavedTensor
from ..format.schema import MANIFEST, RunInfo, collections_path
from ..mode import GLOBAL, ModeKeys, checked_step, checked_steps
from ..snapshot.saved_steps import SavedSteps, StepRange
from ..snapshot.snapshot import Snapshot, after_compaction, read_run_file, repeated, take
from ..snapshot.workers import mark_ended, natural
from ..storage.open import Storage
from ..suggestions import near_names
from .row_cache import RowCache
from .step_states import StepState, StepStates

if TYPE_CHECKING:
    from .run_queries import QuerySources, RunQueries

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_ENDED_SECONDS = 1.0
_LOCAL_CLAIMS_SECONDS = 1.0
_REMOTE_CLAIMS_SECONDS = 10.0
_SCALAR_PREFIX = "scalar/"
_KEPT_ROWS = 4096
_LOCATION = attrgetter("chunk", "row_group", "row", "offset")
_GONE = "the run was deleted, moved or renamed since it was opened; of several open runs, refresh() leaves it out"
_REPLACED = "another run has replaced the run since it was opened; call refresh() to read that one"
_LEFT_OUT = "left out, the rest is readable"


class RunReader:
    """The gateway through which a trial, its tensors and the rules read a run.

    Public methods refresh by themselves, unless that is switched off. Methods under "Of the last refresh" do not: they
    belong to a call that has refreshed, or use steps that a refresh found.
    """

    def __init__(  # noqa: PLR0913 - all options of a trial
        self,
        storage: Storage,
        info: RunInfo,
        name: str = "",
        range_steps: StepRange | None = None,
        engine: Engine | None = None,
        is_refreshing: bool = True,
        verify: bool = True,
        always: Snapshot | None = None,
    ) -> None:
        self.storage = storage
        self.name = name
        """The run's name, for messages."""
        self.range_steps, self.engine = range_steps, engine
        if engine is not None and not hasattr(engine, "connect"):
            raise ConfigurationError(f"engine must be an SQL engine, such as SparkEngine(spark), got {engine!r:.200}")
        self.info = info
        self.wishes: list[tuple[object, bool]] = [(None, is_refreshing)]
        """The value of `is_refreshing` outside of all blocks of `refreshing`, and that of each open block."""
        self.verify = boolean("verify", verify)
        """True if raw values are compared with their digests."""
        self.always = always
        """The snapshot of a trial that does not refresh; None to follow the run."""
        self._claims_seconds = _LOCAL_CLAIMS_SECONDS if storage.is_local else _REMOTE_CLAIMS_SECONDS
        self._closed = False
        self.lock = threading.RLock()
        """A lock, during which the snapshot does not change."""
        self._inherited = False
        self.version = 0
        """A number that grows with each snapshot."""
        self._begin()
        forking.register(self)

    def _begin(self) -> None:
        self._claims_read_at = time.monotonic()
        self._run_file = b""
        """The content of `run.json` at the last comparison."""
        self._snapshot = Snapshot(self.info)
        self._become(self.always or take(self.storage, self.info, range_steps=self.range_steps))
        self._row_cache: RowCache | None = None
        self._states: StepStates | None = None
        self._sources: QuerySources | None = None
        self._queries: RunQueries | None = None
        self._ended_at = time.monotonic() if self._snapshot.job_ended else None
        # This comes last, because other threads of a forked child wait for it.
        self._inherited = False

    def after_fork(self) -> None:
        """Open the run again when it is next read.

        The forked process has lost the engine's threads, and another thread may have been changing the cache.
        """
        self.lock = threading.RLock()
        self._inherited = True

    @property
    def is_refreshing(self) -> bool:
        """True if methods refresh by themselves."""
        return self.wishes[-1][1]

    @property
    def sources(self) -> QuerySources:
        """The files and tables for SQL. Opening the run again makes a new object."""
        from .run_queries import QuerySources  # the modules for SQL are imported with the first query

        with self.lock:
            self._make_own()
            if self._sources is None:
                self._sources = QuerySources(self)
            return self._sources

    @property
    def queries(self) -> RunQueries:
        """The views of the run. Opening the run again makes a new object."""
        from .run_queries import RunQueries

        with self.lock:
            self._make_own()
            if self._queries is None:
                self._queries = RunQueries({"": self}, self.engine, self.range_steps)
            return self._queries

    @property
    def snapshot(self) -> Snapshot:
        """The run, as of the last refresh."""
        self._make_own()
        return self._snapshot

    @property
    def states(self) -> StepStates:
        """The steps and workers of the run, as of the last refresh."""
        self._make_own()
        snapshot = self._snapshot
        if (states := self._states) is None or states.snapshot is not snapshot:
            states = self._states = StepStates(snapshot, self.storage)
        return states

    def _become(self, snapshot: Snapshot) -> bool:
        """Read this snapshot from now on, and log its damaged files. Return whether it is another one."""
        before, self._snapshot = self._snapshot, snapshot
        if snapshot is before:
            return False
        self.version += 1
        for path in snapshot.damaged.keys() - before.damaged.keys():
            what = "opened by listing, because its manifest is damaged" if path == MANIFEST else _LEFT_OUT
            logger.warning("run %s: %s: %s", self.storage.url, what, snapshot.damaged[path])
        return True

    def change(self, changed: Callable[[Snapshot], Snapshot]) -> bool:
        """Replace the snapshot by the result of `changed`. Return whether it is another one."""
        with self.lock:
            return self._become(changed(self.snapshot))

    def recover(self) -> bool:
        """Find the files that replaced others, after files were found missing or damaged.

        Return whether there were any. New steps in them wait for the next refresh.

        Raises:
            RunNotFound: The run was deleted or replaced.
            SnapshotNotFound: These files lack steps of the snapshot, and the trial does not refresh.
        """
        return self.change(self._after_compaction)

    def _after_compaction(self, snapshot: Snapshot) -> Snapshot:
        self._claims_read_at, self._ended_at = 0.0, None  # the next call refreshes
        if RunInfo.from_bytes(read_run_file(self.storage, _GONE), self.storage.url).id != self.info.id:
            raise RunNotFound(self.storage.url, _REPLACED)
        found = after_compaction(self.storage, snapshot)
        if found.is_outdated and (self.always is not None or not self.is_refreshing):
            raise SnapshotNotFound(
                self.storage.url,
                f"the job went back to an earlier step, and files of the snapshot {self.always or snapshot} were "
                "compacted since: only a refresh finds the steps that took the place of its steps",
            )
        return found

    def _make_own(self) -> None:
        if self._closed:
            raise RunClosed
        if not self._inherited:
            return
        with self.lock:
            if self._closed:
                raise RunClosed
            if self._inherited:
                self._begin()

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy, here or in another process, opens the run again, because caches belong to one process.
        options = self.range_steps, self.engine, self.is_refreshing, self.verify, self.always
        return RunReader, (self.storage, self.info, self.name, *options)

    def close(self) -> None:
        """Release the memory."""
        self._closed = True
        if self._queries is not None and not self._inherited:
            self._queries.close()

    # New data.

    def _refresh_if_due(self) -> None:
        # An ended job changes only if it is resumed. Refreshing once a second is enough, and saves listings.
        if self.is_refreshing and not (self._ended_at and time.monotonic() - self._ended_at < _ENDED_SECONDS):
            self.refresh()

    def refresh(self, claims: bool = False) -> None:
        """Find new workers and new data, whether or not methods refresh by themselves.

        A claim changes when its worker resumes the run after a crash or saves other collections, and `run.json` when
        the run is replaced. No listing shows that, so both are read again from time to time, and always with `claims`.

        Raises:
            RunNotFound: The run was deleted.
        """
        with self.lock:
            self._make_own()
            due = claims or time.monotonic() - self._claims_read_at > self._claims_seconds
            if self.always is not None or (due and self._is_replaced()):
                return
            if self._become(take(self.storage, self.info, self._snapshot, claims=due)) and not due:
                self._is_replaced()
            self._ended_at = time.monotonic() if self._snapshot.job_ended else None

    def _is_replaced(self) -> bool:
        """Read the folder again if it now holds another run. Return whether it does."""
        self._claims_read_at, self._ended_at = 0.0, None  # after an error, the next call refreshes
        content, self._claims_read_at = read_run_file(self.storage, _GONE), time.monotonic()
        if content == self._run_file:
            return False
        info, self._run_file = RunInfo.from_bytes(content, self.storage.url), content
        if info.id == self.info.id:
            return False
        # The storage caches files of the other run, which have the same names.
        self.info, self.storage = info, copy(self.storage)
        self._begin()
        return True

    # Steps and workers.

    def now(self) -> StepStates:
        """Return the steps and workers of the run, after a refresh if one is due."""
        self._refresh_if_due()
        return self.states

    def collections(self) -> Iterator[Collection]:
        """Yield the collections in the claims, in natural order of the workers. Log and skip damaged ones."""
        for info in self.now().workers.infos:
            for document in info.collections:
                try:
                    yield Collection.from_dict(document)
                except InvalidCollectionConfiguration as exc:
                    error = CorruptFile(collections_path(info.worker), f"one of its collections is skipped: {exc}")
                    self.exclude(error)

    def exclude(self, error: FileError) -> None:
        """Record that a file of the run is damaged. The rest of the run can be read."""
        self.change(lambda snapshot: snapshot.with_damaged(error))

    def mark_ended(self, worker: str | None) -> None:
        """Record in the run that all workers, or one, have ended. Raise InvalidWorker for an unknown worker."""
        self.refresh(claims=True)
        known, worker = self.snapshot.workers, None if worker is None else str(worker)
        if (workers := mark_ended(self.storage, known, worker)) is not known:
            self.change(lambda snapshot: replace(snapshot, workers=workers))
        self.refresh(claims=True)

    # Names.

    def find_name(self, name: str) -> str:
        """Return the name under which a tensor was saved: smdebug names the scalar x `scalar/x`.

        Raises:
            TensorUnavailable: No tensor of this name was saved; the error names the nearest ones.
        """
        if name in self.snapshot.steps.names:
            return name  # without a refresh: what is read of the tensor refreshes
        names = self.now().saved.names
        for each in (name, name.removeprefix(_SCALAR_PREFIX)):
            if each in names:
                return each
        raise self._no_tensor(name)

    def has_name(self, name: str) -> bool:
        """Return whether `find_name` finds a tensor."""
        return not self.now().saved.names.keys().isdisjoint((name, name.removeprefix(_SCALAR_PREFIX)))

    def tensors(self, mode: ModeKeys, step: int | None = None) -> list[tuple[str, Sequence[str]]]:
        """Return the tensors of a mode, at one step or at any step, by name, each with its collections."""
        self._refresh_if_due()
        if step is None:
            return list(self.snapshot.steps.tensors_of_mode(mode))
        sets = self.snapshot.steps.sets_at(step, mode)
        rows: list[tuple[str, Sequence[str]]] = [row for each in sets for row in self.snapshot.steps.name_sets[each]]
        return rows if len(sets) < 2 else sorted(rows)

    def _no_tensor(self, name: str) -> TensorUnavailable:
        near = near_names(name, self.snapshot.steps.names)
        return TensorUnavailable(name, f"did you mean {' or '.join(map(repr, near))}?" if near else "")

    # Rows and values.

    def tensor_steps(self, name: str, mode: ModeKeys, show_incomplete_steps: bool) -> list[int]:
        """Return the complete steps of a mode at which a tensor was saved, ascending; or all such steps."""
        self._refresh_if_due()
        mode = ModeKeys.parse(mode)
        saved = self.snapshot.steps.steps_of_tensor(name, mode)
        last = next(reversed(self.states.complete(mode)), -1)
        return [step for step in saved if show_incomplete_steps or step <= last]

    def rows_at(self, name: str, step: int, mode: ModeKeys, statistics: bool = False) -> list[SavedTensor]:
        """Return the rows of a tensor at a step, one a worker, in natural order of the workers.

        Raises:
            UnavailableError: There are none.
        """
        self._refresh_if_due()
        return self._rows_at(name, step, ModeKeys.parse(mode), statistics)

    def _rows_at(self, name: str, step: int, mode: ModeKeys, statistics: bool) -> list[SavedTensor]:
        places = self.states.global_steps(step, mode)
        rows = [row for place in places for row in self.rows(name, place, statistics)]
        rows = [row for row in rows if mode is GLOBAL or (row.mode_step == step and row.mode == mode.name)]
        if not rows:
            raise self._not_at_step(name, step, mode)
        of_workers = {row.worker: row for row in rows}
        return [of_workers[worker] for worker in sorted(of_workers, key=natural)] if len(rows) > 1 else rows

    def row(self, name: str, step: int, mode: ModeKeys, worker: str | None, statistics: bool = False) -> SavedTensor:
        """Return the row of a tensor at a step, of one worker or of the first one that has it."""
        kept, key = self.now().rows, (name, step, mode, worker, statistics)
        try:
            row = kept.get(key)
        except TypeError:  # an argument, such as a list, cannot be a key
            worker = None if worker is None else str(worker)
            return self.row(name, checked_step(step), ModeKeys.parse(mode), worker, statistics)
        if row is None:
            row = self._find_row(name, step, ModeKeys.parse(mode), worker, statistics)
            if len(kept) >= _KEPT_ROWS:
                kept.clear()
            kept[key] = row
        return row

    def _find_row(self, name: str, step: int, mode: ModeKeys, worker: str | None, statistics: bool) -> SavedTensor:
        rows = self._rows_at(name, step, mode, statistics)
        if worker is None:
            self.states.lost_rows().check(rows[:1], mode)
            return rows[0]
        if found := next((row for row in rows if row.worker == worker), None):
            return found
        self.states.lost_rows().check_worker(worker, rows[0], mode)
        raise InvalidWorker(worker, [row.worker for row in rows])

    def _not_at_step(self, name: str, step: int, mode: ModeKeys) -> Exception:
        state = self.states.of(step, mode)
        if state is StepState.NOT_YET_AVAILABLE:
            return self.states.not_yet(step, mode)
        hint = self.states.reason_of_loss(step, mode) or self.states.hint(name, step, mode)
        if state is StepState.UNAVAILABLE:
            return StepUnavailable(step, mode, hint)
        return TensorUnavailableForStep(name, step, mode, hint=hint)

    def rows_of(
        self, names: Sequence[str], mode: ModeKeys, worker: str | None, steps: Iterable[int] | None = None
    ) -> dict[str, dict[int, SavedTensor]]:
        """Return the rows of some tensors by name and step, of one worker or of the first one that has each.

        Raise TensorUnavailable for a tensor that was never saved, and InvalidWorker.
        """
        mode = ModeKeys.parse(mode)
        known = self.now().saved.names
        for name in names:
            if name not in known:
                raise self._no_tensor(name)
        wanted = None if steps is None else set(checked_steps(steps))
        worker = None if worker is None else str(worker)
        rows = self._all_rows(names, mode, wanted, worker)
        if worker is not None:
            rows = [row for row in rows if row.worker == worker]
            if not rows:
                self._check_worker(worker, names)
        elif len({row.worker for row in rows}) > 1:
            rows = sorted(rows, key=lambda row: natural(row.worker), reverse=True)  # the last one of a step counts
        found: dict[str, dict[int, SavedTensor]] = {name: {} for name in names}
        is_global = mode is GLOBAL
        for row in rows if is_global else [row for row in rows if row.mode == mode.name]:
            step = row.global_step if is_global else row.mode_step
            if wanted is None or step in wanted:
                found[row.name][step] = row
        if worker is None:
            self.states.lost_rows().check((row for by_step in found.values() for row in by_step.values()), mode)
        if wanted is not None and len(wanted) == 1:
            return found
        return {name: dict(sorted(by_step.items())) for name, by_step in found.items()}

    def _check_worker(self, worker: str, names: Sequence[str]) -> None:
        """Raise InvalidWorker for a worker that never saved any of the tensors, or CorruptFile if that may be lost."""
        if not any(row.worker == worker for row in self.rows_of_tensors(names, worker=worker)):
            rows = self.rows_of_tensors(names)
            for row in rows:
                self.states.lost_rows().check_worker(worker, row, GLOBAL)
            raise InvalidWorker(worker, sorted({row.worker for row in rows}, key=natural))

    def _all_rows(
        self, names: Sequence[str], mode: ModeKeys, wanted: set[int] | None, worker: str | None
    ) -> list[SavedTensor]:
        """Return the rows of some tensors at the wanted steps. Rows of other steps and workers may be among them."""
        if not names or (wanted is not None and not wanted):
            return []
        if wanted is None or len(names) == 1:  # the rows of one tensor are cached
            return self.rows_of_tensors(names, worker=worker)
        if len(wanted) >= len(names):
            return self.rows_of_tensors(names, mode, (min(wanted), max(wanted) + 1), worker)
        # A few steps of many tensors: step by step.
        global_steps = sorted({place for step in wanted for place in self.states.global_steps(step, mode)})
        each_step = map(self.rows_at_step, global_steps)
        return [row for by_name in each_step for name in names for row in by_name.get(name, ())]

    def values(
        self, names: Sequence[str], steps: Iterable[int] | None, mode: ModeKeys, worker: str | None
    ) -> dict[str, dict[int, Array]]:
        """Return the raw values of some tensors, by name and step. Raise the errors of `rows_of`."""
        by_name = self.rows_of(names, mode, worker, steps)
        raw = [(name, step, row) for name, rows in by_name.items() for step, row in rows.items() if row.has_raw]
        found: dict[str, dict[int, Array]] = {name: {} for name in by_name}
        for (name, step, _), array in zip(raw, self.read([row for _, _, row in raw]), strict=True):
            found[name][step] = array
        return found

    def sql(self, query: str, parameters: dict[str, Any] | None = None, timeout: float | None = None) -> Answer:
        """Return the rows of a query on the views of the run; see `RunQueries.sql`."""
        self._refresh_if_due()
        return self.queries.sql(query, parameters, timeout)

    # Of the last refresh.

    def waits_for_itself(self, step: int, mode: ModeKeys) -> bool:
        """Return whether the calling thread writes this run and has not reached a step.

        Once reached, the step may still wait for other workers.
        """
        steps = self.states.all(mode)[0]
        return (not steps or step > steps[-1]) and self.storage.is_written_here()

    def rows(self, name: str, global_step: int, statistics: bool = False) -> list[SavedTensor]:
        """Return the rows of one tensor at one step, one a worker; with statistics only on request."""
        return self.read_rows(lambda cache, steps: cache.rows(steps, name, global_step, statistics))

    def rows_at_step(self, global_step: int) -> dict[str, list[SavedTensor]]:
        """Return the rows of every tensor at a global step, by name, one a worker, without statistics."""
        return self.read_rows(lambda cache, steps: cache.of_step(steps, global_step))

    def rows_of_tensors(
        self,
        names: Sequence[str],
        mode: ModeKeys = GLOBAL,
        span: tuple[int, int] | None = None,
        worker: str | None = None,
    ) -> list[SavedTensor]:
        """Return the rows of some tensors, of every worker, without statistics; see `RowCache.of_tensors`."""
        return self.read_rows(lambda cache, steps: cache.of_tensors(steps, names, mode, span, worker))

    def read_rows(self, read: Callable[[RowCache, SavedSteps], _T]) -> _T:
        """Return the result of `read`. Call it once more if a file was missing because another one replaced it."""
        with self.lock:
            self._make_own()
            cache = self._row_cache = self._row_cache or RowCache(self.storage, self.range_steps)
            return repeated(lambda: read(cache, self.snapshot.steps), self.recover)

    def saved_row(self, name: str, global_step: int, worker: str) -> SavedTensor | None:
        """Return one row with its statistics; None if the worker did not save the tensor at the step."""
        return next((row for row in self.rows(name, global_step, statistics=True) if row.worker == worker), None)

    def read(self, rows: Sequence[SavedTensor]) -> list[Array]:
        """Return the raw values of rows, all of which must have one. Raise MissingChunk or CorruptFile."""
        try:
            return read_values(self.storage, rows, self.verify)
        except (CorruptFile, FileNotFoundError):
            if (now := self._relocated(rows)) is None:
                raise
        return read_values(self.storage, now, self.verify)

    def _relocated(self, rows: Sequence[SavedTensor]) -> list[SavedTensor] | None:
        """Return the rows of the same tensors, whose values were moved by a compaction; None if none was."""
        with self.lock:
            self.recover()
            by_worker = ({each.worker: each for each in self.rows(row.name, row.global_step)} for row in rows)
            found = [now.get(row.worker, row) for row, now in zip(rows, by_worker, strict=True)]
        return None if list(map(_LOCATION, found)) == list(map(_LOCATION, rows)) else found


@contextmanager
def refreshing(readers: Sequence[RunReader], wanted: bool) -> Iterator[None]:
    """Switch refreshing on or off inside the block.

    Blocks of several threads may overlap: the one that began last of those still open decides.
    """
    wish = object(), wanted
    for reader in readers:
        reader.wishes.append(wish)
    try:
        yield
    finally:
        for reader in readers:
            reader.wishes.remove(wish)
