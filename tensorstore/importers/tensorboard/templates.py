"""Events of one number, recognised by the thousand.

An event of one number looks like the one before it of the same tag, but for its time, its step and four bytes of the
number. So the first of them is parsed and kept as a template, and all others that are like one are found at once, by
numpy: parsing each would take most of the time of an import.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...tfevents.wire import varint

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_TIME, _STEP = 0x09, 0x10
"""The keys of the first two fields; nobody writes them in another order."""
_TIME_BYTES = 9
_SHORTEST = 12
_STEP_BYTES = 9
"""A step of 63 bits has no more."""
_SINGLE = struct.Struct("<f")
# A program that makes up tags for ever is not to fill the memory with them.
_MOST = 1 << 16
_WEIGHTS = np.random.default_rng(0).integers(1, 1 << 63, 1 << 12, np.uint64) | np.uint64(1)
_LONGEST = 8 * len(_WEIGHTS)


class Alike(NamedTuple):
    """Events that are like a template: arrays of equal length, shape (n,)."""

    event: Integers
    """Which of the events that were asked about."""
    name: Integers
    """What the template was learnt as."""
    step: Integers
    time: Floats
    """Seconds since 1970."""
    number: Floats


@dataclass(slots=True)
class _Templates:
    """Those of one length that have their number at the same place."""

    hole: int
    rows: list[bytes] = field(default_factory=list)
    names: list[int] = field(default_factory=list)
    _sorted: tuple[npt.NDArray[np.uint64], Bytes, Integers] | None = None

    def add(self, row: bytes, name: int) -> None:
        self.rows.append(row)
        self.names.append(name)
        self._sorted = None

    def find(self, rows: Bytes) -> Integers:
        """The name of each row, which has zeros in the place of the number; -1 for one that is like none."""
        hashes, templates, names = self._by_hash()
        nearest = np.minimum(np.searchsorted(hashes, _hash(rows)), len(hashes) - 1)
        same = (templates[nearest] == rows).all(axis=1)
        return np.where(same, names[nearest], -1)

    def _by_hash(self) -> tuple[npt.NDArray[np.uint64], Bytes, Integers]:
        if self._sorted is None:
            rows = np.frombuffer(b"".join(self.rows), np.uint8).reshape(len(self.rows), -1)
            hashes = _hash(rows)
            order = np.argsort(hashes, kind="stable")
            self._sorted = hashes[order], rows[order], np.array(self.names, np.int64)[order]
        return self._sorted


class Templates:
    """The templates that have been learnt."""

    def __init__(self) -> None:
        self.count = 0
        self._of_length: dict[int, list[_Templates]] = {}

    def clear(self) -> None:
        self.count = 0
        self._of_length.clear()

    def learn(self, name: int, event: bytes, number: float) -> None:
        """Take an event of one number in single precision for a template, if it can be one: where the four bytes of
        the number are found once, there it is."""
        if self.count >= _MOST or number != number or event[0] != _TIME or len(event) < _SHORTEST:
            return
        begin = varint(memoryview(event), 10)[1] if event[_TIME_BYTES] == _STEP else _TIME_BYTES
        body, content = event[begin:], _SINGLE.pack(number)
        if body.count(content) != 1 or len(body) > _LONGEST:
            return
        hole, of_length = body.index(content), self._of_length.setdefault(len(body), [])
        templates = next((each for each in of_length if each.hole == hole), None)
        if templates is None:
            templates = _Templates(hole)
            of_length.append(templates)
        row = body[:hole] + bytes(4) + body[hole + 4 :]
        templates.add(row + bytes(-len(row) % 8), name)
        self.count += 1

    def find(self, data: Bytes, starts: Integers, lengths: Integers) -> Iterator[Alike]:
        """The events that are like a template, of those that begin at `starts` in `data`."""
        events = np.flatnonzero(lengths >= _SHORTEST)
        events = events[data[starts[events]] == _TIME]
        step, begin = _steps(data, starts[events])
        sizes = lengths[events] - begin
        for size in np.unique(sizes).tolist():
            left = np.flatnonzero(sizes == size)
            for templates in self._of_length.get(size, ()):
                rows = _rows(data, starts[events[left]] + begin[left], size)
                number = rows[:, templates.hole : templates.hole + 4].copy().view("<f4")[:, 0]
                rows[:, templates.hole : templates.hole + 4] = 0
                name = templates.find(rows)
                is_like = name >= 0
                event = events[left[is_like]]
                time = _rows(data, starts[event] + 1, 8).view("<f8")[:, 0]
                yield Alike(event, name[is_like], step[left[is_like]], time, number[is_like].astype(np.float64))
                left = left[~is_like]


def _steps(data: Bytes, starts: Integers) -> tuple[Integers, Integers]:
    """The step of each event, and how many bytes time and step take: no possible number for a step below 0."""
    step, begin = np.zeros(len(starts), np.int64), np.full(len(starts), _TIME_BYTES, np.int64)
    left = np.flatnonzero(data[starts + _TIME_BYTES] == _STEP)
    begin[left] = len(data)
    for number in range(_STEP_BYTES):
        digits = data[np.minimum(starts[left] + _TIME_BYTES + 1 + number, len(data) - 1)].astype(np.int64)
        step[left] |= (digits & 0x7F) << 7 * number
        ends = digits < 0x80
        begin[left[ends]] = _TIME_BYTES + 2 + number
        left = left[~ends]
        if not len(left):
            break
    return step, begin


def _rows(data: Bytes, starts: Integers, size: int) -> Bytes:
    """Copies of `size` bytes from each start on, one a row, filled up with zeros to a multiple of eight."""
    rows = np.zeros((len(starts), size + -size % 8), np.uint8)
    rows[:, :size] = np.lib.stride_tricks.sliding_window_view(data, size)[starts]
    return rows


def _hash(rows: Bytes) -> npt.NDArray[np.uint64]:
    """A number for each row; a multiple of eight bytes long. Equal rows have equal numbers."""
    words = rows.view(np.uint64)
    hashes: npt.NDArray[np.uint64] = (words * _WEIGHTS[: words.shape[1]]).sum(axis=1, dtype=np.uint64)
    return hashes
