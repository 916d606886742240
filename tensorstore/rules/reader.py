"""Each step's rows, statistics and raw values, read once for all rules of a trial."""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count, islice
from weakref import WeakKeyDictionary, ref

from .. import forking
from ..config.collection import CollectionKeys
from ..dtypes import Array
from ..errors import StepUnavailable
from ..format.index_types import SavedTensor
from ..mode import ModeKeys
from ..read.run_reader import RunReader
from ..read.trial import Trial, run_reader_of
from ..snapshot.saved_steps import NameSets, SavedSteps, StepInfo
from ..snapshot.workers import natural
from ..statistics.definitions import STATISTICS
from ..statistics.derived import derive
from ..statistics.single import statistics

_POSITION = {name: position for position, name in enumerate(STATISTICS)}
_KEPT_STEPS = 32
_KEPT_BYTES = 256 << 20

Key = tuple[str, int, str]


class NotSaved(Exception):
    """Neither the statistics nor the raw value of a row were saved."""

    def __init__(self, row: SavedTensor, names: Sequence[str]) -> None:
        super().__init__(row.name)
        self.row, self.names = row, tuple(names)


@dataclass(frozen=True)
class Selector:
    """A selection of tensors: those of some collections, and those whose names match one of some regular expressions.

    Both empty select all tensors. Statistics along an axis are tensors, too, and are selected only by the name of their
    collection.
    """

    collections: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()

    def matches(self, name: str, collections: Iterable[str]) -> bool:
        if CollectionKeys.BY_AXIS in collections:
            return CollectionKeys.BY_AXIS in self.collections
        if not self.collections and not self.patterns:
            return True
        if any(wanted == "all" or wanted in collections for wanted in self.collections):
            return True
        return any(re.search(pattern, name) for pattern in self.patterns)

    def __str__(self) -> str:
        parts = [f"of collection {name!r}" for name in self.collections]
        parts += [f"with a name like {pattern!r}" for pattern in self.patterns]
        return f"tensor {' or '.join(parts)}" if parts else "tensor"


class StepView:
    """One step of a run, over the workers to which it is the same step of the same mode."""

    def __init__(self, reader: Reader, info: StepInfo, rows: dict[str, list[SavedTensor]]) -> None:
        self.info = info
        self.step, self.mode, self.mode_step = info.global_step, info.mode, info.mode_step
        place = info.mode.name, info.mode_step
        of_step = {name: [row for row in rows[name] if (row.mode, row.mode_step) == place] for name in rows}
        self.rows = {name: _in_order(of_name) for name, of_name in of_step.items() if of_name}
        self.revision = reader.saved.revision(info.global_step)
        self._reader = reader

    def select(self, selector: Selector) -> list[SavedTensor]:
        """Return the selected rows, by name and worker."""
        names = self._reader.names(self.step, selector)
        return [row for name in names for row in self.rows.get(name, ())]

    def statistics(self, row: SavedTensor, names: tuple[str, ...]) -> tuple[float, ...] | None:
        """Return statistics of a row: the saved ones, or computed from the raw value or from other saved ones.

        None if the dtype defines none of them. Raises NotSaved.
        """
        saved = row.statistics
        if saved is not None:
            found = tuple([saved[position] for position in _positions(names)])
            if None not in found:
                return found  # type: ignore[return-value]
        if not row.has_raw:
            return _derived(row, names)
        computed = self._reader.computed(row, names)
        return None if len(computed) < len(names) else tuple(computed[name] for name in names)

    def saved(self, row: SavedTensor, name: str) -> float | None:
        """Return a statistic if it was saved, or None."""
        return None if row.statistics is None else row.statistics[_POSITION[name]]

    def values(self, rows: Sequence[SavedTensor]) -> list[Array]:
        """Return the raw values of rows, read together. All rows must have one."""
        return self._reader.values(rows)


@cache
def _positions(names: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(_POSITION[name] for name in names)


def _derived(row: SavedTensor, names: tuple[str, ...]) -> tuple[float, ...]:
    known = {name: value for name, value in zip(STATISTICS, row.statistics or (), strict=False) if value is not None}
    found = tuple(derive(name, known, row.shape) for name in names)
    if None in found:
        raise NotSaved(row, names)
    return found  # type: ignore[return-value]


class Reader:
    """The steps and rows of one trial, as of its last refresh. Keeps the last few steps and values.

    Steps, names and modes are those of the trial itself; only what rules compute is kept here.
    """

    def __init__(self, trial: Trial) -> None:
        # Not the trial itself: readers are kept for as long as their trial lives.
        self._trial_ref = ref(trial)
        self._begin()
        forking.register(self)

    def after_fork(self) -> None:
        """Forget everything, because the trial numbers its files again in a forked child."""
        self._begin()

    def _begin(self) -> None:
        self._version = -1
        self._selected: dict[tuple[Selector, int], list[str]] = {}
        self._name_sets: NameSets | None = None
        """The names that `_selected` refers to."""
        self._views: OrderedDict[int, list[StepView]] = OrderedDict()
        self._before: dict[tuple[str, int, tuple[int, ...]], _Remembered] = {}
        """The steps before one, by sets of names, mode and step: those of most tensors of a step are the same."""
        self._values: OrderedDict[Key, Array] = OrderedDict()
        self._bytes = 0
        self._computed: OrderedDict[Key, dict[str, float]] = OrderedDict()

    @property
    def _run(self) -> RunReader:
        trial = self._trial_ref()
        assert trial is not None
        return run_reader_of(trial)

    @property
    def saved(self) -> SavedSteps:
        """The saved steps."""
        saved = self._run.snapshot.steps
        if saved.name_sets is not self._name_sets:  # the run was read again, and may be another one
            self._begin()
            self._name_sets = saved.name_sets
        return saved

    def _forget_old_views(self) -> SavedSteps:
        """Forget views of steps of which another worker's rows have come since. Return the saved steps."""
        saved, version = self.saved, self._run.version
        if version != self._version:
            for step in [step for step, views in self._views.items() if views[0].revision != saved.revision(step)]:
                del self._views[step]
            self._before.clear()
            self._version = version
        return saved

    def views(self, global_step: int) -> list[StepView]:
        """Return the rows of a step: several views where workers are not in step. Raises StepUnavailable."""
        saved = self._forget_old_views()
        views = self._views.get(global_step)
        if views is None:
            infos = saved.infos(global_step)
            if not infos:
                raise StepUnavailable(global_step)
            rows = self._run.rows_at_step(global_step)
            views = self._views[global_step] = [StepView(self, info, rows) for info in infos]
            if len(self._views) > _KEPT_STEPS:
                self._views.popitem(last=False)
        return views

    def modes(self) -> set[ModeKeys]:
        """Return the modes of which a step was saved."""
        return self.saved.modes()

    def mode(self, global_step: int, worker: str | None) -> ModeKeys | None:
        """Return the mode of a saved step for a worker, or else for the first that has it; None for any other step."""
        info = self._run.states.info(global_step, ModeKeys.GLOBAL, worker)
        return None if info is None else info.mode

    def previous_info(self, global_step: int) -> StepInfo | None:
        """Return the saved step before one, of any mode."""
        saved = self.saved
        steps = map(saved.steps_of_mode, saved.modes())
        before = [of_mode[position - 1] for of_mode in steps if (position := bisect_left(of_mode, global_step))]
        return saved.infos(max(before))[0] if before else None

    def earlier(self, row: SavedTensor) -> Iterator[SavedTensor]:
        """Yield the rows of the same tensor, worker and mode before `row`, newest first.

        Each is read when the iterator reaches it.
        """
        for info in self._steps_before(row):
            if (found := self._row(row, info)) is not None:
                yield found

    def since(self, row: SavedTensor, first_mode_step: int) -> SavedTensor | None:
        """Return the earliest row of the same tensor, worker and mode between a mode step and `row`.

        Its mode step is at least `first_mode_step`, and before that of `row`.
        """
        for info in reversed(list(self._steps_before(row))):
            if info.mode_step >= first_mode_step and (found := self._row(row, info)) is not None:
                return found
        return None

    def until(self, row: SavedTensor, last_mode_step: int) -> SavedTensor | None:
        """Return the newest row of the same tensor, worker and mode at a mode step of at most `last_mode_step`."""
        for info in self._steps_before(row):
            if info.mode_step <= last_mode_step and (found := self._row(row, info)) is not None:
                return found
        return None

    def names(self, global_step: int, selector: Selector) -> list[str]:
        """Return the names of the selected tensors at a step, sorted."""
        found = [self._select(selector, name_set) for name_set in self.saved.sets_at(global_step)]
        return found[0] if len(found) == 1 else sorted({name for names in found for name in names})

    def steps_of(self, selector: Selector) -> list[int]:
        """Return the global steps at which a selected tensor was saved, ascending."""
        saved = self.saved
        return sorted(
            {step for each in saved.sets() if self._select(selector, each) for step in saved.steps_of_set(each)}
        )

    def modes_of(self, selector: Selector) -> set[ModeKeys]:
        """Return the modes in which a selected tensor was saved, by the first and last step of each set of names."""
        saved = self.saved
        sets = [name_set for name_set in saved.sets() if self._select(selector, name_set)]
        ends = {
            (step, each)
            for each in sets
            for of_set in [saved.steps_of_set(each)]
            for step in (*of_set[:1], *of_set[-1:])
        }
        return {info.mode for step, name_set in ends for info in saved.infos(step, name_set=name_set)}

    def values(self, rows: Sequence[SavedTensor]) -> list[Array]:
        missing = [row for row in rows if _key(row) not in self._values]
        fresh = (
            {_key(row): value for row, value in zip(missing, self._run.read(missing), strict=True)} if missing else {}
        )
        found = [fresh.get(_key(row), self._values.get(_key(row))) for row in rows]
        for key, value in fresh.items():
            self._values[key] = value
            self._bytes += value.nbytes
        while self._bytes > _KEPT_BYTES and len(self._values) > 1:
            _, dropped = self._values.popitem(last=False)
            self._bytes -= dropped.nbytes
        return found  # type: ignore[return-value]

    def computed(self, row: SavedTensor, names: tuple[str, ...]) -> dict[str, float]:
        """Return statistics computed from the raw value, without those that its dtype does not define."""
        known = self._computed.setdefault(_key(row), {})
        missing = tuple(name for name in names if name not in known)
        if missing:
            known.update(statistics(self.values([row])[0], missing))
        if len(self._computed) > 10_000:
            self._computed.popitem(last=False)
        return {name: known[name] for name in names if name in known}

    def _select(self, selector: Selector, name_set: int) -> list[str]:
        key = (selector, name_set)
        names = self._selected.get(key)
        if names is None:
            names = sorted(name for name, of in self.saved.tensors(name_set) if selector.matches(name, of))
            self._selected[key] = names
        return names

    def _row(self, row: SavedTensor, info: StepInfo) -> SavedTensor | None:
        """Return the row of the same tensor and worker at a step; None if to the worker it is another step."""
        views = self._views.get(info.global_step)
        if views is None:
            found = self._run.saved_row(row.name, info.global_step, row.worker)
        else:
            rows = (each for view in views for each in view.rows.get(row.name, ()))
            found = next((each for each in rows if each.worker == row.worker), None)
        is_it = found is not None and (found.mode, found.mode_step) == (info.mode.name, info.mode_step)
        return found if is_it else None

    def _steps_before(self, row: SavedTensor) -> Iterator[StepInfo]:
        """Yield the steps of a tensor in its mode before that of a row, newest first."""
        saved = self._forget_old_views()
        key = row.mode, row.global_step, tuple(saved.sets_of(row.name))
        if key not in self._before:
            if len(self._before) >= _KEPT_STEPS:
                self._before.clear()
            self._before[key] = _Remembered(_steps_of_mode_before(saved, *key))
        return iter(self._before[key])


class _Remembered:
    """Steps from an iterator, for several readers. It is advanced as far as one of them has read."""

    def __init__(self, source: Iterator[StepInfo]) -> None:
        self._source, self._known = source, list[StepInfo]()

    def __iter__(self) -> Iterator[StepInfo]:
        for position in count():
            if position == len(self._known):
                self._known += islice(self._source, 1)
            if position == len(self._known):
                return
            yield self._known[position]


def _steps_of_mode_before(
    saved: SavedSteps, mode: str, global_step: int, name_sets: Sequence[int]
) -> Iterator[StepInfo]:
    """Yield the steps of some sets of names in a mode before a step, newest first."""
    wanted = ModeKeys[mode]
    steps = [saved.steps_of_set(name_set) for name_set in name_sets]
    positions = [bisect_left(of_set, global_step) for of_set in steps]
    while any(positions):
        newest = max(of_set[position - 1] for of_set, position in zip(steps, positions, strict=True) if position)
        for which, of_set in enumerate(steps):
            if positions[which] and of_set[positions[which] - 1] == newest:
                positions[which] -= 1
        yield from (info for info in saved.infos(newest) if info.mode is wanted)


# By what each trial reads through, because trials of the same path are equal.
_readers: WeakKeyDictionary[RunReader, Reader] = WeakKeyDictionary()
_lock = threading.Lock()


@forking.call_in_child
def _make_lock_again() -> None:
    global _lock
    _lock = threading.Lock()


def reader_of(trial: Trial) -> Reader:
    """Return the reader of a trial, which all its rules share."""
    with _lock:
        run = run_reader_of(trial)
        if run not in _readers:
            _readers[run] = Reader(trial)
        return _readers[run]


def _in_order(rows: list[SavedTensor]) -> list[SavedTensor]:
    return sorted(rows, key=lambda row: natural(row.worker)) if len(rows) > 1 else rows


def _key(row: SavedTensor) -> Key:
    return row.name, row.global_step, row.worker
