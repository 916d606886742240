"""Event files read into columns: numbers as they are, and of everything larger the place where it lies.

TensorBoard's steps come in no order: what is saved once an epoch lies between batches, and a folder a mode has steps of
its own. So a first reading notes every value, and the second one takes them in the order of steps.
"""

from __future__ import annotations

import struct
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..events.tfrecord import TornRecord, records
from ..events.wire import Value, fields, message, number, signed, varint
from ..mode import ModeKeys
from ..storage import ByteRange, Storage
from .tensorboard_values import (
    Kind,
    Plugin,
    hyperparameters,
    is_single,
    kind_of,
    number_of,
    plugin_of,
    tag_of,
    values_of,
)

_HEADER = 12
_WALL_TIME, _STEP, _SUMMARY = 1, 2, 5
_OTHER_EVENTS = {4: "graphs", 6: "log messages", 8: "metadata of steps", 9: "graphs"}
_DOUBLE = struct.Struct("<d")
_SINGLE = struct.Struct("<f")
_LATEST = 8e9  # seconds; a time after 2200 is garbage
# Events of one number look the same but for time, step and number. A program that makes up tags is not to fill memory.
_TEMPLATES = 1 << 16


class Place(NamedTuple):
    """Where a value lies."""

    record: ByteRange
    """The event, without its frame."""
    number: int
    """Which of the event's values it is."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Values in the order of modes' steps, each at its global step: arrays of equal length, shape (n,)."""

    mode: npt.NDArray[np.int64]
    """The mode's number."""
    step: npt.NDArray[np.int64]
    """In the mode, as TensorBoard has it."""
    name: npt.NDArray[np.int64]
    saved_at: npt.NDArray[np.int64]
    """Nanoseconds since 1970, UTC; 0 if that cannot be told."""
    number: npt.NDArray[np.float64]
    place: npt.NDArray[np.int64]
    """Which of the reader's `places` holds it; -1 for a number."""


class EventReader:
    """Reads the event files of one run, one after the other, and remembers what is in them."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.names: list[str] = []
        self.kinds: list[Kind] = []
        self.places: list[Place] = []
        self.hyperparameters: dict[str, Any] = {}
        self.left_out: Counter[str] = Counter()
        """What cannot be kept, in words, and how often it came."""
        self.damage: list[str] = []
        """What could not be read, in sentences."""
        self._numbers: dict[tuple[str, Kind], int] = {}
        self._taken: set[str] = set()
        self._plugins: dict[str, Plugin] = {}
        self._templates: dict[tuple[bytes, bytes], int] = {}
        self._holes: dict[int, list[int]] = {}
        self._modes, self._steps, self._names = array("b"), array("q"), array("l")
        self._times, self._values, self._placed = array("d"), array("d"), array("l")
        # Of the file that is being read.
        self._mode, self._path, self._prefix = ModeKeys.GLOBAL.value, "", ""

    def read(self, path: str, mode: ModeKeys, prefix: str, advance: Callable[[float], object]) -> None:
        """Read a file, whose tags get `prefix`; `advance` is told of each of its bytes."""
        if (mode.value, prefix) != (self._mode, self._prefix):
            # What a tag is, is said once in each folder.
            self._plugins.clear()
            self._templates.clear()
            self._holes.clear()
        self._mode, self._path, self._prefix = mode.value, path, prefix
        done = 0
        for position, record in records(self._bytes):
            if isinstance(record, TornRecord):
                self._damaged(position, record)
                continue
            self._take(position, record)
            if position - done > 1 << 20:
                advance(position - done)
                done = position

    def _bytes(self, start: int, length: int) -> bytes | bytearray:
        return self._storage.read_ranges([ByteRange(self._path, start, length)])[0]

    def _damaged(self, position: int, why: Exception) -> None:
        self.damage.append(f"{self._storage.url}/{self._path}, the record at byte {position}: {why}")

    def _take_known(self, event: bytes) -> bool:
        """Take an event that is like an earlier one of the same tag: most are, and parsing takes several times as
        long."""
        if event[:1] != b"\x09" or len(event) < 12:
            return False
        step, begin = 0, 9
        if event[9] == 0x10:
            step, begin = event[10], 11
            if step >= 0x80:
                step, begin = varint(memoryview(event), 10)
            if step >> 63:
                return False  # below 0
        body = event[begin:]
        for hole in self._holes.get(len(body), ()):
            name = self._templates.get((body[:hole], body[hole + 4 :]))
            if name is not None:
                self._add(name, step, _DOUBLE.unpack_from(event, 1)[0], _SINGLE.unpack_from(body, hole)[0])
                return True
        return False

    def _add(self, name: int, step: int, time: float, value: float, place: int = -1) -> None:
        self._modes.append(self._mode)
        self._steps.append(step)
        self._names.append(name)
        self._times.append(time)
        self._values.append(value)
        self._placed.append(place)

    def _take(self, position: int, event: memoryview) -> None:
        try:
            if self._take_known(bytes(event)):
                return
            found: dict[int, Value] = dict(fields(event))
            for field in found.keys() & _OTHER_EVENTS.keys():
                self.left_out[_OTHER_EVENTS[field]] += 1
            if _SUMMARY not in found:
                return
            time = _DOUBLE.unpack(message(found[_WALL_TIME]))[0] if _WALL_TIME in found else 0.0
            step = signed(number(found.get(_STEP, 0)))
            values = list(values_of(message(found[_SUMMARY])))
            record = ByteRange(self._path, position + _HEADER, len(event))
            for index, value in enumerate(values):
                name = self._take_value(value, step, time, Place(record, index))
                if name is not None and len(values) == 1:
                    self._learn(name, value, bytes(event))
        except (ValueError, TypeError, struct.error) as exc:
            self._damaged(position, exc)

    def _take_value(self, value: dict[int, Value], step: int, time: float, place: Place) -> int | None:
        """Gives the number's name, if it is a number that is kept."""
        tag, plugin = tag_of(value), plugin_of(value)
        if plugin is not None:
            self._plugins.setdefault(tag, plugin)
        plugin = self._plugins.get(tag, Plugin())
        if plugin.name == "hparams":
            self.hyperparameters.update(hyperparameters(plugin))
            return None
        kind = kind_of(value, plugin)
        if not isinstance(kind, Kind):
            self.left_out[kind] += 1
        elif step < 0:
            self.left_out["values at steps below 0"] += 1
        elif kind is Kind.NUMBER:
            name = self._name(tag, kind)
            self._add(name, step, time, number_of(value))
            return name
        else:
            self.places.append(place)
            self._add(self._name(tag, kind), step, time, np.nan, len(self.places) - 1)
        return None

    def _name(self, tag: str, kind: Kind) -> int:
        """The number of the tensor that the tag's values of this kind are."""
        key = self._prefix + tag, kind
        found = self._numbers.get(key)
        if found is None:
            name = key[0] or "unnamed"
            # TensorBoard shows a number and a histogram of one tag on different pages; a tensor is one of them.
            while name in self._taken:
                name = f"{name}/{kind.value}"
            self._taken.add(name)
            found = self._numbers[key] = len(self.names)
            self.names.append(name)
            self.kinds.append(kind)
        return found

    def _learn(self, name: int, value: dict[int, Value], event: bytes) -> None:
        """Remember what an event of one number is like, as far as the number has four bytes that are found once."""
        number = self._values[-1]
        if not is_single(value) or number != number or event[0] != 9 or len(self._templates) >= _TEMPLATES:
            return
        begin = varint(memoryview(event), 10)[1] if event[9] == 0x10 else 9
        body, content = event[begin:], _SINGLE.pack(number)
        if body.count(content) == 1:
            hole = body.index(content)
            self._templates[body[:hole], body[hole + 4 :]] = name
            if hole not in (holes := self._holes.setdefault(len(body), [])):
                holes.append(hole)

    def columns(self) -> Columns:
        """All values. Of one that comes twice at a step of a mode the last stays: a job that was resumed from a
        checkpoint saves some steps again."""
        mode, step, name = (np.array(each, np.int64) for each in (self._modes, self._steps, self._names))
        order = np.lexsort((name, mode, step))
        mode, step, name = mode[order], step[order], name[order]
        is_last = np.ones(len(order), bool)
        is_last[:-1] = (step[1:] != step[:-1]) | (mode[1:] != mode[:-1]) | (name[1:] != name[:-1])
        kept = order[is_last]
        times = np.frombuffer(self._times, np.float64)[kept] if len(kept) else np.zeros(0)
        times = np.where((times >= 0) & (times < _LATEST), times, 0.0)
        return Columns(
            mode[is_last],
            step[is_last],
            name[is_last],
            # A double holds the microseconds of such a time, and no more.
            np.rint(times * 1e6).astype(np.int64) * 1000,
            np.array(self._values)[kept],
            np.array(self._placed, np.int64)[kept],
        )

    def fetch(self, places: Sequence[int]) -> list[bytes | bytearray]:
        """The events with the values at these places."""
        return self._storage.read_ranges([self.places[place].record for place in places])

    def value_at(self, place: int, event: bytes | bytearray) -> dict[int, Value]:
        """The value at a place, out of the event that was fetched for it. Raises ValueError."""
        summary = dict(fields(memoryview(event))).get(_SUMMARY, memoryview(b""))
        return list(values_of(message(summary)))[self.places[place].number]
