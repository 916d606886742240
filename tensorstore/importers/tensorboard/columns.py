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

from ...mode import ModeKeys
from ...storage.open import ByteRange, Storage
from ...tfevents.tfrecord import HEADER, Block, blocks, checksum_error
from ...tfevents.wire import Value, fields, message, number, signed
from .known_scalars import KnownScalars
from .values import (
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

_WALL_TIME, _STEP, _SUMMARY = 1, 2, 5
_OTHER_EVENTS = {4: "graphs", 6: "log messages", 8: "metadata of steps", 9: "graphs"}
_DOUBLE = struct.Struct("<d")
_LATEST = 8e9  # seconds; a time after 2200 is garbage


class RecordLocation(NamedTuple):
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
        self.places: list[RecordLocation] = []
        self.hyperparameters: dict[str, Any] = {}
        self.left_out: Counter[str] = Counter()
        """What cannot be kept, in words, and how often it came."""
        self.damage: list[str] = []
        """What could not be read, in sentences."""
        self._numbers: dict[tuple[str, Kind], int] = {}
        self._taken: set[str] = set()
        self._plugins: dict[str, Plugin] = {}
        self._known = KnownScalars()
        # The values, in columns.
        self._orders, self._modes, self._steps, self._names = array("q"), array("q"), array("q"), array("q")
        self._times, self._values, self._placed = array("d"), array("d"), array("q")
        self._files = 0
        # Of the file that is being read.
        self._mode, self._path, self._prefix = ModeKeys.GLOBAL.value, "", ""

    def read(self, path: str, mode: ModeKeys, prefix: str, advance: Callable[[float], object]) -> None:
        """Read a file, whose tags get `prefix`; `advance` is told of each of its bytes."""
        if (mode.value, prefix) != (self._mode, self._prefix):
            # What a tag is, is said once in each folder.
            self._plugins.clear()
            self._known.clear()
        self._mode, self._path, self._prefix = mode.value, path, prefix
        for block in blocks(self._bytes):
            self._take_block(block)
            advance(block.end)
            if block.damage is not None:
                self._damaged(block.position + block.end, block.damage)
        self._files += 1

    def _take_block(self, block: Block) -> None:
        for start, length, is_good in zip(
            block.starts.tolist(), block.lengths.tolist(), block.good.tolist(), strict=True
        ):
            position = block.position + start
            if is_good:
                self._take(position, bytes(block.view[start : start + length]))
            else:
                self._damaged(position - HEADER, checksum_error(length))

    def _order(self, position: int) -> int:
        """Where a value is in the order of files, and of what is in them."""
        return (self._files << 44) + position

    def _bytes(self, start: int, length: int) -> bytes | bytearray:
        return self._storage.read_ranges([ByteRange(self._path, start, length)])[0]

    def _damaged(self, position: int, why: Exception) -> None:
        self.damage.append(f"{self._storage.url}/{self._path}, the record at byte {position}: {why}")

    def _add(self, position: int, name: int, step: int, time: float, value: float, place: int = -1) -> None:
        self._orders.append(self._order(position))
        self._modes.append(self._mode)
        self._steps.append(step)
        self._names.append(name)
        self._times.append(time)
        self._values.append(value)
        self._placed.append(place)

    def _take(self, position: int, event: bytes) -> None:
        scalar = self._known.find(event)
        if scalar is None:
            self._parse(position, event)
        else:
            self._add(position, *scalar)

    def _parse(self, position: int, event: bytes) -> None:
        try:
            found: dict[int, Value] = dict(fields(memoryview(event)))
            for field in found.keys() & _OTHER_EVENTS.keys():
                self.left_out[_OTHER_EVENTS[field]] += 1
            if _SUMMARY not in found:
                return
            time = _DOUBLE.unpack(message(found[_WALL_TIME]))[0] if _WALL_TIME in found else 0.0
            step = signed(number(found.get(_STEP, 0)))
            values = list(values_of(message(found[_SUMMARY])))
            record = ByteRange(self._path, position, len(event))
            for index, value in enumerate(values):
                name = self._take_value(value, step, time, RecordLocation(record, index))
                if name is not None and len(values) == 1 and is_single(value):
                    self._known.add(name, event, self._values[-1])
        except (ValueError, TypeError, struct.error) as exc:
            self._damaged(position, exc)

    def _take_value(self, value: dict[int, Value], step: int, time: float, place: RecordLocation) -> int | None:
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
            self._add(place.record.start, name, step, time, number_of(value))
            return name
        else:
            self.places.append(place)
            self._add(place.record.start, self._name(tag, kind), step, time, np.nan, len(self.places) - 1)
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

    def columns(self) -> Columns:
        """All values. Of one that comes twice at a step of a mode the last stays: a job that was resumed from a
        checkpoint saves some steps again."""
        columns = (self._orders, self._modes, self._steps, self._names, self._times, self._values, self._placed)
        orders, mode, step, name, time, number, place = map(np.array, columns)
        order = np.lexsort((orders, name, mode, step))
        mode, step, name = mode[order], step[order], name[order]
        is_last = np.ones(len(order), bool)
        is_last[:-1] = (step[1:] != step[:-1]) | (mode[1:] != mode[:-1]) | (name[1:] != name[:-1])
        kept = order[is_last]
        seconds = np.where((time[kept] >= 0) & (time[kept] < _LATEST), time[kept], 0.0)
        # A double holds the microseconds of such a time, and no more.
        saved_at = np.rint(seconds * 1e6).astype(np.int64) * 1000
        return Columns(mode[is_last], step[is_last], name[is_last], saved_at, number[kept], place[kept])

    def fetch(self, places: Sequence[int]) -> list[bytes | bytearray]:
        """The events with the values at these places."""
        return self._storage.read_ranges([self.places[place].record for place in places])

    def value_at(self, place: int, event: bytes | bytearray) -> dict[int, Value]:
        """The value at a place, out of the event that was fetched for it. Raises ValueError."""
        summary = dict(fields(memoryview(event))).get(_SUMMARY, memoryview(b""))
        return list(values_of(message(summary)))[self.places[place].number]
