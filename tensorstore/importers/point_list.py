"""A list of the points of one run. It is filled one value at a time, and leaves out values that a run cannot hold."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..mode import ModeKeys
from ..visible import quoted
from .documents import clean
from .histograms import edges_and_counts
from .metrics import ROUNDED, Drawn, Points, Report
from .numbers import STEPS_END

_HISTOGRAMS = {"histogram", "trackio.histogram"}


class PointList:
    """Collects the points of one run in the order in which they were logged.

    Args:
        path: The path of their source, for messages.
        report: Receives a sentence about each kind of thing that is left out.
        modes: The modes of its steps.
    """

    def __init__(self, path: str, report: Report, modes: Sequence[ModeKeys] = (ModeKeys.GLOBAL,)) -> None:
        self._path, self._report, self._modes = path, report, tuple(modes)
        self._names: dict[str, int | None] = {}
        self._usable = 0
        self._name, self._step, self._saved_at = array("q"), array("q"), array("q")
        self._value = array("d")
        self._drawn: list[Drawn] = []
        self._others = Counter[str]()
        self._stepless = Counter[str]()
        self._rounded = Counter[str]()

    def add(self, name: str, step: Any, value: Any, saved_at: int = 0, mode: ModeKeys | None = None) -> None:
        """Add a value. Anything but a number is left out and reported.

        `step` must be a whole number from 0 to 1e12, divided by the number of modes. `saved_at` is in nanoseconds since
        1970, UTC; 0 if unknown. `mode` is by default the first of `modes`.
        """
        number = _number(value)
        if number is None:
            self._others[name] += 1
            return
        index = self._index(name)
        if index is None:
            return
        if not self._is_step(step):
            self._stepless[str(step)[:40]] += 1
            return
        if isinstance(value, int) and value != number:
            self._rounded[name] += 1
        self._name.append(index)
        self._step.append(self._global_step(step, mode))
        self._value.append(number)
        self._saved_at.append(saved_at)

    def add_nested(
        self, values: Mapping[str, Any], step: Any, saved_at: int = 0, ignored: frozenset[str] = frozenset()
    ) -> None:
        """Add the values of a step: numbers, histograms or mappings. `{"a": {"b": 1}}` adds the number `a.b`."""
        for name, value in _flat(values):
            if name in ignored:
                continue
            if isinstance(value, Mapping):
                self.add_histogram(name, step, value, saved_at)
            else:
                self.add(name, step, value, saved_at)

    def add_histogram(
        self, name: str, step: Any, value: Mapping[str, Any], saved_at: int = 0, mode: ModeKeys | None = None
    ) -> None:
        """Add a histogram from a mapping with its type, edges and counts. Anything else is left out and reported."""
        counted = edges_and_counts(value) if value.get("_type") in _HISTOGRAMS else None
        if counted is None or not name or clean(name) != name:
            self._others[name] += 1
        elif not self._is_step(step):
            self._stepless[str(step)[:40]] += 1
        else:
            self._drawn.append(Drawn(name, self._global_step(step, mode), saved_at, *counted))

    def discard_after(self, step: int) -> int:
        """Remove the values after a global step, and return their number."""
        before = len(self._step) + len(self._drawn)
        keep = np.flatnonzero(np.array(self._step, np.int64) <= step)
        for column in (self._name, self._step, self._value, self._saved_at):
            column[:] = array(column.typecode, np.array(column)[keep].tobytes())
        self._drawn = [drawn for drawn in self._drawn if drawn.step <= step]
        return before - len(self._step) - len(self._drawn)

    def points(self, metadata: Mapping[str, Any]) -> Points:
        """Return the points with the metadata of their run, and report everything that was left out."""
        self._report_left_out()
        names = [clean(name) for name, index in self._names.items() if index is not None]
        return Points(
            names,
            np.array(self._name, np.int64),
            np.array(self._step, np.int64),
            np.array(self._value, np.float64),
            np.array(self._saved_at, np.int64),
            clean(metadata),
            self._drawn,
            self._modes,
        )

    def _global_step(self, step: float, mode: ModeKeys | None) -> int:
        return int(step) * len(self._modes) + (0 if mode is None else self._modes.index(mode))

    def _is_step(self, step: Any) -> bool:
        is_number = isinstance(step, int | float) and not isinstance(step, bool)
        return is_number and 0 <= step < STEPS_END // len(self._modes) and step == int(step)

    def _index(self, name: str) -> int | None:
        if name not in self._names:
            usable = bool(name) and clean(name) == name
            if not usable:
                self._report(f"{self._path}: the values of {name!r}, which cannot be the name of a tensor")
            self._names[name] = self._usable if usable else None
            self._usable += usable
        return self._names[name]

    def _report_left_out(self) -> None:
        for found, sentence in ((self._others, "{} values that are no numbers, of {}"), (self._rounded, ROUNDED)):
            if found:
                self._report(f"{self._path}: {sentence.format(found.total(), quoted(list(found)))}")
        if self._stepless:
            first = next(iter(self._stepless))
            count = self._stepless.total()
            end = f"{STEPS_END // len(self._modes):.3g}".replace("+", "")
            self._report(f"{self._path}: {count} values whose step is no whole number from 0 to {end}, such as {first}")


def _flat(values: Mapping[str, Any], depth: int = 16) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and "_type" not in value and depth:
            for inner, each in _flat(value, depth - 1):
                yield f"{key}.{inner}", each
        else:
            yield key, value


def _number(value: Any) -> float | None:
    if isinstance(value, float):
        return value
    if isinstance(value, int):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return None
