"""The saved steps of a run: their modes, times and tensors, kept in memory and extended as the run grows."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from ...engines.base import Rows
from ...mode import ModeKeys

_MODES = {mode.name: mode for mode in ModeKeys}


class StepQueries(Protocol):
    """A catalogue of one run."""

    @property
    def version(self) -> int: ...

    def fetch(self, query: str, **parameters: Any) -> Rows: ...


class StepInfo(NamedTuple):
    """A saved step."""

    global_step: int
    mode: ModeKeys
    mode_step: int
    saved_at: float
    """Seconds since 1970, when the first worker's last tensor of the step was saved."""


NamedCollections = tuple[str, tuple[str, ...]]
"""The name of a tensor and the collections that it is part of."""


class StepLog:
    """The steps of a run, as of the last `update`. A step refers to sets of tensors: most steps hold the same."""

    def __init__(self) -> None:
        self._version = -1
        self._last_file = 0
        self._last_set = -1
        self._tensors: dict[int, list[NamedCollections]] = {}
        self._sets_of_name: dict[str, list[int]] = defaultdict(list)
        self._sets_of_step: dict[int, list[int]] = defaultdict(list)
        self._steps_of_set: dict[int, list[int]] = defaultdict(list)
        self._infos: dict[int, StepInfo] = {}
        self._global_steps: dict[ModeKeys, dict[int, list[int]]] = {mode: defaultdict(list) for mode in ModeKeys}
        self._steps_of_mode: dict[ModeKeys, list[int]] = defaultdict(list)
        self._revisions: dict[int, int] = {}

    def update(self, catalogue: StepQueries) -> None:
        """Add the steps that the catalogue has found since the last time."""
        version = catalogue.version
        if version == self._version:
            return
        new = catalogue.fetch("steps_since", after=self._last_file)
        if any(row[-1] not in self._tensors for row in new):
            self._add_sets(catalogue.fetch("name_sets_since", after=self._last_set))
        for file_id, mode, mode_step, step, saved_at, name_set in new:
            self._last_file = max(self._last_file, file_id)
            self._add(StepInfo(step, _MODES[mode], mode_step, saved_at or 0.0), name_set)
        self._version = version

    def _add_sets(self, rows: Rows) -> None:
        for name_set, members in groupby(rows, lambda row: row[0]):
            self._tensors[name_set] = [(name, tuple(collections)) for _, name, collections in members]
            for name, _ in self._tensors[name_set]:
                self._sets_of_name[name].append(name_set)
            self._last_set = max(self._last_set, name_set)

    def _add(self, info: StepInfo, name_set: int) -> None:
        step = info.global_step
        self._revisions[step] = self._revisions.get(step, 0) + 1
        sets = self._sets_of_step[step]
        if name_set not in sets:
            sets.append(name_set)
            insort(self._steps_of_set[name_set], step)
        if step not in self._infos:
            self._infos[step] = info
            insort(self._steps_of_mode[info.mode], step)
        in_mode = self._global_steps[info.mode][info.mode_step]
        if step not in in_mode:
            insort(in_mode, step)

    def modes(self) -> set[ModeKeys]:
        """Return the modes of which a step was saved."""
        return set(self._steps_of_mode)

    def info(self, global_step: int) -> StepInfo | None:
        """Return a saved step; None for any other."""
        return self._infos.get(global_step)

    def revision(self, global_step: int) -> int:
        """Return a number that grows when another worker's rows of a step are found."""
        return self._revisions.get(global_step, 0)

    def steps_of_mode(self, mode: ModeKeys) -> Sequence[int]:
        """Return the global steps of a mode, ascending."""
        return self._steps_of_mode.get(mode, ())

    def global_step(self, mode: ModeKeys, mode_step: int) -> int | None:
        """Return the global step of a step of a mode; None if it was not saved."""
        steps = self._global_steps[mode].get(mode_step)
        return steps[-1] if steps else None

    def sets_at(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> list[int]:
        """Return the sets of tensors that a step of a mode holds."""
        if mode is ModeKeys.GLOBAL:
            return self._sets_of_step.get(step, [])
        steps = self._global_steps[mode].get(step, ())
        return list(dict.fromkeys(each for global_step in steps for each in self._sets_of_step[global_step]))

    def sets_of(self, name: str) -> Sequence[int]:
        """Return the sets that hold a tensor."""
        return self._sets_of_name.get(name, ())

    def sets(self) -> Iterable[int]:
        """Return all sets."""
        return self._tensors

    def tensors(self, name_set: int) -> list[NamedCollections]:
        """Return the tensors of a set, with their collections."""
        return self._tensors.get(name_set, [])

    def steps_of_set(self, name_set: int) -> list[int]:
        """Return the global steps that hold a set, ascending."""
        return self._steps_of_set.get(name_set, [])
