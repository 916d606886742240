"""What rules read of a run: each step's rows, statistics and raw values, read once however many rules ask."""

from __future__ import annotations

import re
import threading
from bisect import bisect_left, insort
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary, ref

from .. import forking
from ..dtypes import Array
from ..errors import StepUnavailable
from ..format.index_types import SavedTensor
from ..mode import ModeKeys
from ..read.trial import Trial
from ..read.workers import natural
from ..statistics.definitions import STATISTICS
from ..statistics.derived import derive
from ..statistics.single import statistics

_POSITION = {name: position for position, name in enumerate(STATISTICS)}
_KEPT_STEPS = 32
_KEPT_BYTES = 256 << 20

Key = tuple[str, int, str]


class NotSaved(Exception):
    """Neither the statistics nor the raw value of a row are there."""

    def __init__(self, row: SavedTensor, names: Sequence[str]) -> None:
        super().__init__(row.name)
        self.row, self.names = row, tuple(names)


@dataclass(frozen=True)
class Selector:
    """Tensors of any of the collections, or with a name in which any of the expressions is found; all, if both are
    empty."""

    collections: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()

    def matches(self, name: str, collections: Iterable[str]) -> bool:
        if not self.collections and not self.patterns:
            return True
        if any(wanted == "all" or wanted in collections for wanted in self.collections):
            return True
        return any(re.search(pattern, name) for pattern in self.patterns)

    def __str__(self) -> str:
        parts = [f"of collection {name!r}" for name in self.collections]
        parts += [f"with a name like {pattern!r}" for pattern in self.patterns]
        return f"tensor {' or '.join(parts)}" if parts else "tensor"


@dataclass(frozen=True)
class StepInfo:
    """A saved step."""

    global_step: int
    mode: ModeKeys
    mode_step: int
    saved_at: float
    """Seconds since 1970, when the first worker's last tensor of the step was saved."""


class StepView:
    """One step of a run, over all workers."""

    def __init__(self, reader: Reader, info: StepInfo, rows: dict[str, list[SavedTensor]]) -> None:
        self.info = info
        self.step, self.mode, self.mode_step = info.global_step, info.mode, info.mode_step
        self.rows = {name: _in_order(of_name) for name, of_name in rows.items()}
        self._reader = reader

    def select(self, selector: Selector) -> list[SavedTensor]:
        """The selected rows, by name and worker."""
        names = self._reader.names(self.step, selector)
        return [row for name in names for row in self.rows.get(name, ())]

    def statistics(self, row: SavedTensor, names: tuple[str, ...]) -> tuple[float, ...] | None:
        """Statistics of a row: the saved ones, else computed from the raw value, else from other saved ones; None where
        the dtype defines none.

        Raises NotSaved.
        """
        saved = row.statistics
        if saved is not None:
            found = tuple(saved[_POSITION[name]] for name in names)
            if None not in found:
                return found  # type: ignore[return-value]
        if not row.has_raw:
            return _derived(row, names)
        computed = self._reader.computed(row, names)
        return None if len(computed) < len(names) else tuple(computed[name] for name in names)

    def saved(self, row: SavedTensor, name: str) -> float | None:
        """A statistic, only if it was saved."""
        return None if row.statistics is None else row.statistics[_POSITION[name]]

    def values(self, rows: Sequence[SavedTensor]) -> list[Array]:
        """Raw values, read together. All rows must have one."""
        return self._reader.values(rows)


def _derived(row: SavedTensor, names: tuple[str, ...]) -> tuple[float, ...]:
    known = {name: value for name, value in zip(STATISTICS, row.statistics or (), strict=False) if value is not None}
    found = tuple(derive(name, known, row.shape) for name in names)
    if None in found:
        raise NotSaved(row, names)
    return found  # type: ignore[return-value]


class Reader:
    """The steps and rows of one trial, as of its last refresh. Keeps the last few steps and values."""

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
        self._last_file = 0
        self._last_set = -1
        self._sets: dict[int, list[tuple[str, tuple[str, ...]]]] = {}
        self._sets_of_name: dict[str, list[int]] = defaultdict(list)
        self._sets_of_step: dict[int, list[int]] = defaultdict(list)
        self._steps_of_set: dict[int, list[int]] = defaultdict(list)
        self._infos: dict[int, StepInfo] = {}
        self._steps_of_mode: dict[ModeKeys, list[int]] = defaultdict(list)
        self._selected: dict[tuple[Selector, int], list[str]] = {}
        self._views: OrderedDict[int, StepView] = OrderedDict()
        self._values: OrderedDict[Key, Array] = OrderedDict()
        self._bytes = 0
        self._computed: OrderedDict[Key, dict[str, float]] = OrderedDict()

    @property
    def _trial(self) -> Trial:
        trial = self._trial_ref()
        assert trial is not None
        return trial

    def step(self, global_step: int) -> StepView:
        """What was saved at a step. Raises StepUnavailable."""
        self._update()
        view = self._views.get(global_step)
        if view is None:
            if global_step not in self._infos:
                raise StepUnavailable(global_step)
            view = StepView(self, self._infos[global_step], self._trial.reader.rows_at_step(global_step))
            self._views[global_step] = view
            if len(self._views) > _KEPT_STEPS:
                self._views.popitem(last=False)
        return view

    def modes(self) -> set[ModeKeys]:
        """The modes of which a step was saved."""
        self._update()
        return set(self._steps_of_mode)

    def info(self, global_step: int) -> StepInfo | None:
        self._update()
        return self._infos.get(global_step)

    def previous_info(self, global_step: int) -> StepInfo | None:
        """The saved step before one, of whatever mode."""
        self._update()
        before = [
            steps[position - 1]
            for steps in self._steps_of_mode.values()
            if (position := bisect_left(steps, global_step))
        ]
        return self._infos[max(before)] if before else None

    def earlier(self, row: SavedTensor) -> Iterator[SavedTensor]:
        """The rows of the same tensor, worker and mode before `row`, newest first, read as they are asked for."""
        self._update()
        for step in self._steps_before(row.name, row.global_step, row.mode):
            found = self._row(row.name, step, row.worker)
            if found is not None:
                yield found

    def since(self, row: SavedTensor, first_mode_step: int) -> SavedTensor | None:
        """The earliest row of the same tensor, worker and mode at a mode step of at least `first_mode_step`, before
        `row`."""
        self._update()
        within = [
            step
            for step in self._steps_before(row.name, row.global_step, row.mode)
            if self._infos[step].mode_step >= first_mode_step
        ]
        return self._row(row.name, within[-1], row.worker) if within else None

    def until(self, row: SavedTensor, last_mode_step: int) -> SavedTensor | None:
        """The newest row of the same tensor, worker and mode at a mode step of at most `last_mode_step`."""
        self._update()
        for step in self._steps_before(row.name, row.global_step, row.mode):
            if self._infos[step].mode_step <= last_mode_step:
                return self._row(row.name, step, row.worker)
        return None

    def names(self, global_step: int, selector: Selector) -> list[str]:
        """The names of the selected tensors at a step, sorted."""
        sets = self._sets_of_step.get(global_step, [])
        found = [self._select(selector, name_set) for name_set in dict.fromkeys(sets)]
        return found[0] if len(found) == 1 else sorted({name for names in found for name in names})

    def modes_of(self, selector: Selector) -> set[ModeKeys]:
        """The modes in which a selected tensor was saved."""
        self._update()
        sets = [name_set for name_set in self._sets if self._select(selector, name_set)]
        return {self._infos[step].mode for name_set in sets for step in self._steps_of_set[name_set][-1:]} | {
            self._infos[step].mode for name_set in sets for step in self._steps_of_set[name_set][:1]
        }

    def values(self, rows: Sequence[SavedTensor]) -> list[Array]:
        missing = [row for row in rows if _key(row) not in self._values]
        fresh = (
            {_key(row): value for row, value in zip(missing, self._trial.reader.read(missing), strict=True)}
            if missing
            else {}
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
        """Statistics computed from the raw value; those its dtype does not define are left out."""
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
            names = sorted(name for name, of in self._sets.get(name_set, ()) if selector.matches(name, of))
            self._selected[key] = names
        return names

    def _row(self, name: str, step: int, worker: str) -> SavedTensor | None:
        view = self._views.get(step)
        if view is None:
            return self._trial.reader.saved_row(name, step, worker)
        return next((row for row in view.rows.get(name, ()) if row.worker == worker), None)

    def _steps_before(self, name: str, global_step: int, mode: str) -> Iterable[int]:
        """The steps of a tensor in a mode before one, newest first."""
        wanted = ModeKeys[mode]
        steps = [self._steps_of_set[name_set] for name_set in self._sets_of_name.get(name, ())]
        positions = [bisect_left(of_set, global_step) for of_set in steps]
        while any(positions):
            newest = max(
                (of_set[position - 1], which)
                for which, (of_set, position) in enumerate(zip(steps, positions, strict=True))
                if position
            )
            step = newest[0]
            for which, of_set in enumerate(steps):
                if positions[which] and of_set[positions[which] - 1] == step:
                    positions[which] -= 1
            if self._infos[step].mode is wanted:
                yield step

    def _update(self) -> None:
        """Take in the steps that the trial has found since the last time."""
        version = self._trial.reader.version
        if version == self._version:
            return
        new = self._trial.reader.steps_since(self._last_file)
        if any(row[-1] not in self._sets for row in new):
            self._learn_sets()
        for file_id, mode, mode_step, step, saved_at, name_set in new:
            self._last_file = max(self._last_file, file_id)
            # Another worker's rows of a step that was looked at before it was complete.
            self._views.pop(step, None)
            if name_set not in self._sets_of_step[step]:
                self._sets_of_step[step].append(name_set)
                insort(self._steps_of_set[name_set], step)
            if step not in self._infos:
                self._infos[step] = StepInfo(step, ModeKeys[mode], mode_step, saved_at or 0.0)
                insort(self._steps_of_mode[ModeKeys[mode]], step)
        self._version = version

    def _learn_sets(self) -> None:
        for name_set, name, collections in self._trial.reader.name_sets_since(self._last_set):
            self._sets.setdefault(name_set, []).append((name, tuple(collections)))
            self._sets_of_name[name].append(name_set)
            self._last_set = max(self._last_set, name_set)


_readers: WeakKeyDictionary[Trial, Reader] = WeakKeyDictionary()
_lock = threading.Lock()


@forking.call_in_child
def _make_lock_again() -> None:
    global _lock
    _lock = threading.Lock()


def reader_of(trial: Trial) -> Reader:
    """The one reader of a trial, which all rules on it share."""
    with _lock:
        if trial not in _readers:
            _readers[trial] = Reader(trial)
        return _readers[trial]


def _in_order(rows: list[SavedTensor]) -> list[SavedTensor]:
    return sorted(rows, key=lambda row: natural(row.worker)) if len(rows) > 1 else rows


def _key(row: SavedTensor) -> Key:
    return row.name, row.global_step, row.worker
