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
    """The steps of a run, as of the last `update`. A step refers to sets of tensors: most steps hold the same.

    Workers need not be in step: a global step may be one step of a mode for one worker and another for the next.
    """

    def __init__(self) -> None:
        self._version = -1
        self._last_file = 0
        self._last_set = -1
        self._tensors: dict[int, list[NamedCollections]] = {}
        self._sets_of_name: dict[str, list[int]] = defaultdict(list)
        self._steps_of_set: dict[int, list[int]] = defaultdict(list)
        self._saved: dict[ModeKeys, dict[int, list[tuple[StepInfo, int]]]] = {mode: {} for mode in ModeKeys}
        """What was saved at the steps of each mode, with its set of tensors; of GLOBAL, by global step."""
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
        step, mode = info.global_step, info.mode
        self._revisions[step] = self._revisions.get(step, 0) + 1
        saved = self._saved[ModeKeys.GLOBAL].setdefault(step, [])
        if any(known == name_set and each[:3] == info[:3] for each, known in saved):
            return
        if all(known != name_set for _, known in saved):
            insort(self._steps_of_set[name_set], step)
        if all(each.mode is not mode for each, _ in saved):
            insort(self._steps_of_mode[mode], step)
        saved.append((info, name_set))
        if mode is not ModeKeys.GLOBAL:
            self._saved[mode].setdefault(info.mode_step, []).append((info, name_set))

    def modes(self) -> set[ModeKeys]:
        """Return the modes of which a step was saved."""
        return set(self._steps_of_mode)

    def infos(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL, name_set: int | None = None) -> list[StepInfo]:
        """Return what workers saved as a step of a mode, ascending; with a set of tensors, those who saved that."""
        saved = self._saved[mode].get(step, ())
        found = {info[:3]: info for info, known in reversed(saved) if name_set in (None, known)}
        return sorted(found.values(), key=lambda info: info.global_step)

    def revision(self, global_step: int) -> int:
        """Return a number that grows when another worker's rows of a step are found."""
        return self._revisions.get(global_step, 0)

    def steps_of_mode(self, mode: ModeKeys) -> Sequence[int]:
        """Return the global steps of a mode, ascending."""
        return self._steps_of_mode.get(mode, ())

    def sets_at(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> list[int]:
        """Return the sets of tensors that a step of a mode holds."""
        return list(dict.fromkeys(name_set for _, name_set in self._saved[mode].get(step, ())))

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
