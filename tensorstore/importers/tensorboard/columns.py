"""A reader of event files into columns, which hold numbers themselves, and the locations of larger values.

Event files are not ordered by step: values of an epoch are between those of batches, and the folder of each mode has
its own steps. So all files are read once into columns, which are sorted, and larger values are fetched later.
"""

from __future__ import annotations

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
from ...tfevents.wire import Value, fields, floating, message, number, signed
from ..times import LATEST
from .known_scalars import MODE_STEPS_END, KnownScalars, Scalars
from .values import Kind, Plugin, hyperparameters, is_single, kind_of, number_of, plugin_of, tag_of, values_of

_WALL_TIME, _STEP, _SUMMARY, _SESSION = 1, 2, 5, 7
_START = 1
_OTHER_EVENTS = {4: "graphs", 6: "log messages", 8: "metadata of steps", 9: "graphs"}
_FEWEST_TOGETHER, _MOST_TOGETHER = 64, 1 << 13
"""The numbers of events that are looked up at once, at first and later: a new tag is parsed until the next look-up."""


class RecordLocation(NamedTuple):
    """The location of a value in a run's event files."""

    record: ByteRange
    """The event, without its frame."""
    number: int
    """The index of the value in the event."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Values in the order of step and mode, as arrays of equal length, shape (n,)."""

    mode: npt.NDArray[np.int64]
    """The mode's number."""
    step: npt.NDArray[np.int64]
    """The step in the mode, which is TensorBoard's step."""
    name: npt.NDArray[np.int64]
    saved_at: npt.NDArray[np.int64]
    """Nanoseconds since 1970, UTC; 0 if unknown."""
    number: npt.NDArray[np.float64]
    location: npt.NDArray[np.int64]
    """Indices into the reader's `locations`; -1 for a number."""


class EventReader:
    """A reader of the event files of one run, which collects their values."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.names: list[str] = []
        self.kinds: list[Kind] = []
        self.locations: list[RecordLocation] = []
        self.hyperparameters: dict[str, Any] = {}
        self.left_out: Counter[str] = Counter()
        """The number of values that cannot be kept, by their kind in words."""
        self.damage: list[str] = []
        """A sentence for each record that could not be read."""
        self._numbers: dict[tuple[str, Kind], int] = {}
        self._taken: set[str] = set()
        self._plugins: dict[str, Plugin] = {}
        self._known = KnownScalars()
        self._together = _FEWEST_TOGETHER
        # The columns of values, in the order of files and of positions in them.
        self._steps, self._names, self._times, self._values = array("q"), array("q"), array("d"), array("d")
        self._located = array("q")
        """The index of the value of each entry in `locations`."""
        self._modes: list[int] = []
        self._begins: list[int] = []
        """The mode and the first value of each file."""
        self._purges: list[tuple[int, int, int]] = []
        """Ranges of values that no longer count because their job went back, each with the first step."""
        # State of the folder that is being read: its first value.
        self._begin = 0
        # State of the file that is being read.
        self._mode, self._path, self._prefix = ModeKeys.GLOBAL.value, "", ""

    def read(self, path: str, mode: ModeKeys, prefix: str, advance: Callable[[float], object]) -> None:
        """Read a file, whose tags get `prefix`. `advance` is called with the number of bytes read."""
        if (mode.value, prefix) != (self._mode, self._prefix):
            # In each folder, only the first value of a tag names its plugin.
            self._plugins.clear()
            self._known.clear()
            self._together = _FEWEST_TOGETHER
            self._begin = len(self._steps)
        self._mode, self._path, self._prefix = mode.value, path, prefix
        self._modes.append(mode.value)
        self._begins.append(len(self._steps))
        for block in blocks(self._bytes):
            self._take_block(block)
            advance(block.end)
            if block.damage is not None:
                self._damaged(block.position + block.end, block.damage)

    def _take_block(self, block: Block) -> None:
        begin = 0
        while begin < len(block.starts):
            end = begin + self._together
            self._take_events(block, slice(begin, end))
            begin, self._together = end, min(2 * self._together, _MOST_TOGETHER)

    def _take_events(self, block: Block, events: slice) -> None:
        """Take known scalars together, and parse the events between them."""
        starts, lengths, good = block.starts[events], block.lengths[events], block.good[events]
        found = self._known.find(block.data, starts, lengths)
        begin = 0
        for row in [*np.flatnonzero((found.name < 0) | ~good).tolist(), len(starts)]:
            if begin < row:
                self._add_all(found, slice(begin, row))
            if row < len(starts):
                start, length = int(starts[row]), int(lengths[row])
                if good[row]:
                    self._parse(block.position + start, bytes(block.view[start : start + length]))
                else:
                    self._damaged(block.position + start - HEADER, checksum_error(length))
            begin = row + 1

    def _bytes(self, start: int, length: int) -> bytes | bytearray:
        return self._storage.read_ranges([ByteRange(self._path, start, length)])[0]

    def _damaged(self, position: int, why: Exception) -> None:
        self.damage.append(f"{self._storage.url}/{self._path}, the record at byte {position}: {why}")

    def _add_all(self, found: Scalars, rows: slice) -> None:
        self._names.frombytes(found.name[rows].tobytes())
        self._steps.frombytes(found.step[rows].tobytes())
        self._times.frombytes(found.time[rows].tobytes())
        self._values.frombytes(found.value[rows].tobytes())

    def _add(self, name: int, step: int, time: float, value: float) -> None:
        self._steps.append(step)
        self._names.append(name)
        self._times.append(time)
        self._values.append(value)

    def _parse(self, position: int, event: bytes) -> None:
        try:
            found: dict[int, Value] = dict(fields(memoryview(event)))
            for field in found.keys() & _OTHER_EVENTS.keys():
                self.left_out[_OTHER_EVENTS[field]] += 1
            if _SESSION in found and dict(fields(message(found[_SESSION]))).get(1) == _START:
                # TensorBoard discards the folder's values from this step on.
                self._purges.append((self._begin, len(self._steps), signed(number(found.get(_STEP, 0)))))
            if _SUMMARY not in found:
                return
            time = floating(found[_WALL_TIME]) if _WALL_TIME in found else 0.0
            step = signed(number(found.get(_STEP, 0)))
            values = list(values_of(message(found[_SUMMARY])))
            record = ByteRange(self._path, position, len(event))
            is_plain = len(values) == 1 and found.keys() <= {_WALL_TIME, _STEP, _SUMMARY}
            for index, value in enumerate(values):
                name = self._take_value(value, step, time, RecordLocation(record, index))
                if name is not None and is_plain and is_single(value):
                    self._known.add(name, event, step, time, self._values[-1])
        except (ValueError, TypeError) as exc:
            self._damaged(position, exc)

    def _take_value(self, value: dict[int, Value], step: int, time: float, location: RecordLocation) -> int | None:
        """Keep a value. Return the name of a number, or None for anything else."""
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
        elif step >= MODE_STEPS_END:
            self.left_out[f"values at steps from {MODE_STEPS_END:.3g} on"] += 1
        elif kind is Kind.NUMBER:
            name = self._name(tag, kind)
            self._add(name, step, time, number_of(value))
            return name
        else:
            self.locations.append(location)
            self._located.append(len(self._steps))
            self._add(self._name(tag, kind), step, time, np.nan)
        return None

    def _name(self, tag: str, kind: Kind) -> int:
        """Return the index in `names` of the tensor that holds a tag's values of this kind."""
        key = self._prefix + tag, kind
        found = self._numbers.get(key)
        if found is None:
            name = key[0] or "unnamed"
            # One tag may have numbers and histograms in TensorBoard; a tensor has only one of them.
            while name in self._taken:
                name = f"{name}/{kind.value}"
            self._taken.add(name)
            found = self._numbers[key] = len(self.names)
            self.names.append(name)
            self.kinds.append(kind)
        return found

    def columns(self) -> Columns:
        """Return all values.

        Of two values of a tensor at one step of a mode the last is kept, because a job that resumes from a checkpoint
        saves some steps again. If the files record where the job continued, later values of its first attempt are left
        out.
        """
        return self._columns(self._counts())

    def withdrawn(self) -> Columns:
        """Return the values that are left out because their job continued at an earlier step."""
        return self._columns(~self._counts())

    def _counts(self) -> npt.NDArray[np.bool_]:
        step, counts = np.array(self._steps), np.ones(len(self._steps), bool)
        for begin, end, first in self._purges:
            counts[begin:end] &= step[begin:end] < first
        return counts

    def _columns(self, chosen: npt.NDArray[np.bool_]) -> Columns:
        count = len(self._steps)
        modes = np.repeat(np.array(self._modes, np.int64), np.diff([*self._begins, count]))
        locations = np.full(count, -1)
        locations[np.array(self._located)] = np.arange(len(self._located))
        columns = (modes, self._steps, self._names, self._times, self._values, locations)
        mode, step, name, time, number, location = (np.array(column)[chosen] for column in columns)
        order = np.lexsort((name, mode, step))  # a stable sort keeps the order of values of one name and step
        mode, step, name = mode[order], step[order], name[order]
        is_last = np.ones(len(order), bool)
        is_last[:-1] = (step[1:] != step[:-1]) | (mode[1:] != mode[:-1]) | (name[1:] != name[:-1])
        kept = order[is_last]
        seconds = np.where((time[kept] >= 0) & (time[kept] < LATEST), time[kept], 0.0)
        # A double represents such a time to a microsecond.
        saved_at = np.rint(seconds * 1e6).astype(np.int64) * 1000
        return Columns(mode[is_last], step[is_last], name[is_last], saved_at, number[kept], location[kept])

    def fetch(self, locations: Sequence[int]) -> list[bytes | bytearray]:
        """Return the events with the values at these indices of `locations`."""
        return self._storage.read_ranges([self.locations[location].record for location in locations])

    def value_at(self, location: int, event: bytes | bytearray) -> dict[int, Value]:
        """Return the value at a location of an event that `fetch` returned. Raises ValueError for a damaged value."""
        summary = dict(fields(memoryview(event))).get(_SUMMARY, memoryview(b""))
        return list(values_of(message(summary)))[self.locations[location].number]
