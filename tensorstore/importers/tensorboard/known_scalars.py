"""A cache by which scalar events are recognized instead of parsed.

An event of one scalar differs from the earlier ones of its tag only in its time, its step and the four bytes of the
value. So the first event of a tag is parsed, and those after it are looked up by their remaining bytes, many at once.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...mode import ModeKeys
from ...tfevents.wire import varint
from ..numbers import STEPS_END

Integers = npt.NDArray[np.int64]

MODE_STEPS_END = STEPS_END // len(ModeKeys)
"""The first step of a mode that is left out: global steps count through the modes."""
_TIME_KEY, _STEP_KEY = 0x09, 0x10
"""The keys of the first two fields. Every known writer puts them in this order."""
_TIME_END = 9
_SHORTEST = 12
_TIME, _VALUE = struct.Struct("<d"), struct.Struct("<f")
_MAX_KNOWN = 1 << 16
"""The most entries: a program that writes ever new tags must not fill the memory."""


class Scalars(NamedTuple):
    """The scalars of consecutive events, as columns of equal length, shape (n,)."""

    name: Integers
    """The number of the name; -1 for an unrecognized event, whose other columns are meaningless."""
    step: Integers
    time: npt.NDArray[np.float64]
    """Seconds since 1970."""
    value: npt.NDArray[np.float64]


class KnownScalars:
    """The scalar events seen so far, one for each tag and layout."""

    def __init__(self) -> None:
        # By the size of an event after its step, and the offset of the value in there.
        self._layouts: dict[tuple[int, int], _Layout] = {}
        self._count = 0

    def clear(self) -> None:
        """Forget all events."""
        self._layouts.clear()
        self._count = 0

    def add(self, name: int, event: bytes, step: int, time: float, value: float) -> None:
        """Recognize later events like this one, unless the position of a number in it is ambiguous.

        Args:
            name: The number that `find` returns for such events.
            event: The event, which has one value in single precision.
            step: Its step.
            time: Its time in seconds since 1970.
            value: Its value, whose bytes must occur in the event once.
        """
        if self._count >= _MAX_KNOWN or value != value or len(event) < _SHORTEST or event[0] != _TIME_KEY:
            return
        if _TIME.unpack_from(event, 1)[0] != time or (found := _body_start(event))[0] != step:
            return
        body, content = event[found[1] :], _VALUE.pack(value)
        if body.count(content) != 1:
            return
        at = body.index(content)
        layout = self._layouts.setdefault((len(body), at), _Layout(len(body), at))
        layout.add(body[:at] + body[at + _VALUE.size :], name)
        self._count += 1

    def find(self, data: npt.NDArray[np.uint8], starts: Integers, lengths: Integers) -> Scalars:
        """Return the scalars of events.

        Args:
            data: The bytes in which the events are.
            starts: The offset of each event, shape (n,).
            lengths: The size of each event in bytes, shape (n,).
        """
        found = Scalars(np.full(len(starts), -1), *(np.zeros(len(starts), kind) for kind in ("i8", "f8", "f8")))
        rows = np.flatnonzero(lengths >= _SHORTEST)
        rows = rows[data[starts[rows]] == _TIME_KEY]
        begin = starts[rows]
        found.step[rows], body = _steps(data, begin + _TIME_END)
        found.time[rows] = _unpacked(data, begin + 1, "<f8")
        size = np.where(found.step[rows] < MODE_STEPS_END, begin + lengths[rows] - body, 0)
        for layout in self._layouts.values():
            of_layout = np.flatnonzero(size == layout.size)
            name, value = layout.find(data, body[of_layout])
            is_known = name >= 0
            known = rows[of_layout[is_known]]
            found.name[known], found.value[known] = name[is_known], value[is_known]
        return found


class _Layout:
    """Events of one size, with their value at the same offset."""

    def __init__(self, size: int, at: int) -> None:
        self.size, self._at = size, at
        self._others = np.delete(np.arange(size), np.s_[at : at + _VALUE.size])
        self._names: dict[bytes, int] = {}
        self._sorted: tuple[npt.NDArray[Any], Integers] | None = None

    def add(self, others: bytes, name: int) -> None:
        """Add the bytes of an event without those of its value."""
        self._names[others] = name
        self._sorted = None

    def find(self, data: npt.NDArray[np.uint8], starts: Integers) -> tuple[Integers, npt.NDArray[np.float64]]:
        """Return the names and values of events of this size; -1 for an unknown event."""
        kind = f"S{len(self._others)}"
        if self._sorted is None:
            ordered = sorted(self._names.items())
            self._sorted = np.array([others for others, _ in ordered], kind), np.array([name for _, name in ordered])
        known, names = self._sorted
        # Texts of numpy compare as if zeros at their ends were absent, and all of these are of one length.
        others = data[starts[:, None] + self._others].view(kind)[:, 0]
        place = np.minimum(np.searchsorted(known, others), len(known) - 1)
        found = np.where(known[place] == others, names[place], -1)
        return found, _unpacked(data, starts + self._at, "<f4").astype(np.float64)


def _unpacked(data: npt.NDArray[np.uint8], positions: Integers, kind: str) -> npt.NDArray[Any]:
    """Return the numbers at some positions, which need not be aligned."""
    return data[positions[:, None] + np.arange(np.dtype(kind).itemsize)].view(kind)[:, 0]


def _body_start(event: bytes) -> tuple[int, int]:
    """Return the step, and the position after time and step; the end of the event for a step below 0."""
    if event[_TIME_END] != _STEP_KEY:
        return 0, _TIME_END
    try:
        step, begin = varint(event, _TIME_END + 1)
    except ValueError:
        return 0, len(event)
    return (0, len(event)) if step >> 63 else (step, begin)


def _steps(data: npt.NDArray[np.uint8], positions: Integers) -> tuple[Integers, Integers]:
    """Return the steps whose fields are at `positions`, and the positions after them.

    Without such a field, the step is 0. A step below 0 has the greatest position, which no event reaches.
    """
    is_open = data[positions] == _STEP_KEY
    steps, positions = np.zeros(len(positions), np.int64), positions + is_open
    for shift in range(0, 63, 7):
        byte = data[np.minimum(positions, len(data) - 1)].astype(np.int64)
        steps |= np.where(is_open, (byte & 0x7F) << shift, 0)
        positions = positions + is_open
        is_open &= byte >= 0x80
        if not is_open.any():
            return steps, positions
    return steps, np.where(is_open, np.iinfo(np.int64).max, positions)
