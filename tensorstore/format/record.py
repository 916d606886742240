"""The objects that a hook passes to the writer."""

from __future__ import annotations

import mmap
import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from ..config.collection import CollectionKeys
from ..dtypes import Array
from ..errors import UnsupportedValue, shown
from ..mode import ModeKeys
from ..statistics.definitions import name_by_axis
from ..statistics.digest import digest_header, passing_page
from .buffer_pool import SMALL_BYTES, fresh_memory
from .schema import LENGTH_PREFIX

_BATCH_VALUES = 4096
_BATCH_BUFFER_BYTES = 4 << 20
_SPARE_BATCH_BUFFERS = 24
_spare_batch_buffers: dict[int, deque[mmap.mmap]] = {}
"""Released memory of batch buffers, by its size, which all runs of the process share."""
_pack_length = struct.Struct("<i").pack_into


def check_name(name: Any) -> None:
    """Raise UnsupportedValue for a tensor's name that is not text, is empty, or that UTF-8 cannot encode."""
    if not isinstance(name, str) or not name:
        raise UnsupportedValue(f"a tensor's name must be text and not empty, got {shown(name)}")
    try:
        name.encode()
    except UnicodeEncodeError as exc:
        raise UnsupportedValue(f"{shown(name)} cannot be a tensor's name: {exc.reason}") from None


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of what to keep of one tensor. Steps at which the same is due share one object."""

    name: str
    collections: tuple[str, ...]
    """Every collection that the tensor is part of, sorted."""
    raw: bool
    statistics: tuple[str, ...] = ()
    histogram: bool = False
    parameter: str | None = None
    """For a gradient, the name of its parameter."""
    digest: bool = False
    """True to keep the digest even if no raw value goes into a chunk."""
    by_axis: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """Axes, negative ones from the last, each with the statistics to keep for each index along it."""
    sketch: bool = False
    """True to keep a sketch, from which quantiles are computed."""

    only_raw: bool = field(init=False, compare=False)
    """True if only the raw value is kept."""
    _spec: TensorSpec | None = field(init=False, compare=False, repr=False, default=None)

    def __post_init__(self) -> None:
        others = self.statistics or self.histogram or self.sketch
        object.__setattr__(self, "only_raw", self.raw and not others)
        if self.name != "":  # as runs of other writers have it
            check_name(self.name)

    def spec(self, dtype: str, shape: tuple[int, ...], nbytes: int) -> TensorSpec:
        """Return the spec that a value shares with the last one of the tensor, or a new one."""
        spec = self._spec
        if spec is None or spec.nbytes != nbytes or spec.dtype != dtype or spec.shape != shape:
            spec = TensorSpec(self, dtype, shape, nbytes)
            object.__setattr__(self, "_spec", spec)
        return spec


@lru_cache(maxsize=65536)
def plan_by_axis(tensor: str, statistic: str, axis: int) -> Plan:
    """Return the plan of the tensor that holds a statistic for each index along an axis, counted from the first."""
    return Plan(name_by_axis(tensor, statistic, axis), (CollectionKeys.BY_AXIS,), True)


@dataclass(frozen=True, slots=True, eq=False)
class TensorSpec:
    """The properties that the values of one tensor share, step after step.

    They share one object, so its columns are encoded once a file and not once a value.
    """

    plan: Plan
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    digest_header: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest_header", digest_header(self.dtype, self.shape))


class BufferOwner(Protocol):
    """The owner of the memory of a value."""

    def release(self, copy: Array) -> None:
        """Use the memory of `copy` again. The copy must not be read afterwards. Any thread may call this."""


@dataclass(slots=True)
class Record:
    """One tensor at one step."""

    plan: Plan
    value: Array | float
    """A host array that nothing else changes, or a scalar. The writer owns its memory from now on."""
    saved_at_ns: int
    """Nanoseconds since 1970, UTC."""
    statistics: Mapping[str, float] | None = None
    """The statistics that the hook computed on the tensor's device; None if the writer computes them."""
    dtype: str | None = None
    """With `statistics` and no raw value, `value` is not the tensor: these are its dtype and shape."""
    shape: tuple[int, ...] | None = None
    ready: Callable[[], object] | None = None
    """Waits until value and statistics have arrived from a device; called before either is read."""
    owner: BufferOwner | None = None
    """The owner of the memory of `value`."""
    histogram: tuple[list[float], list[int]] | None = None
    """The histogram's edges and counts if they are known, as in an import without values."""
    by_axis: Mapping[int, Mapping[str, Array]] | None = None
    """With `statistics`, also the statistics for each index along the plan's axes that the tensor has."""

    def release(self) -> None:
        """Release the memory of the value, once it was written or is not needed."""
        if self.owner is not None and not isinstance(self.value, float):
            self.owner.release(self.value)
            self.owner = None


@dataclass(slots=True)
class ScalarBatch:
    """Many scalars at one step: one object for thousands of them, to spare the garbage collector."""

    plans: list[Plan]
    values: list[float]
    saved_at_ns: list[int]
    """Nanoseconds since 1970, UTC."""

    def add(self, plans: Sequence[Plan], values: Sequence[float], saved_at_ns: Sequence[int]) -> None:
        # Without calls, between which Ctrl-C could leave the lists unequally long.
        self.plans += plans
        self.values += values
        self.saved_at_ns += saved_at_ns


class BatchBuffer:
    """A buffer in which values lie one after another as in a page of Parquet, each after its length.

    Its memory is used again once the object is garbage-collected.
    """

    def __init__(self, spare: deque[mmap.mmap], memory: mmap.mmap) -> None:
        self._spare, self.memory = spare, memory
        self.end = 0
        """The position in the memory after the last value."""

    def __del__(self) -> None:
        self._spare.append(self.memory)


class BatchBuffers:
    """Batch buffers for one thread at a time. They may be released from any thread."""

    def __init__(self, nbytes: int = _BATCH_BUFFER_BYTES) -> None:
        self._nbytes = nbytes
        self._spare = _spare_batch_buffers.setdefault(nbytes, deque(maxlen=_SPARE_BATCH_BUFFERS))
        self._current: BatchBuffer | None = None

    def acquire(self, nbytes: int) -> BatchBuffer:
        """Return a buffer with space for a value of this size."""
        if self._current is None or self._current.end + LENGTH_PREFIX + nbytes > self._nbytes:
            self._current = None  # this may release its memory
            try:
                memory = self._spare.pop()
            except IndexError:  # not asked before: another thread may take the last one
                memory = fresh_memory(self._nbytes)
            self._current = BatchBuffer(self._spare, memory)
        return self._current


class ValueBatch:
    """The raw values of many tensors at one step of which nothing else is saved.

    The values lie one after another in a batch buffer, as a page of Parquet holds them, so that they are written in
    one piece.
    """

    __slots__ = ("_begin", "_buffer", "nbytes", "saved_at_ns", "specs")

    def __init__(self, buffer: BatchBuffer) -> None:
        self._buffer, self._begin = buffer, buffer.end
        self.nbytes = 0
        """Bytes of all values with their lengths."""
        self.specs: list[TensorSpec] = []
        self.saved_at_ns: list[int] = []
        """Nanoseconds since 1970, UTC."""

    def add(self, spec: TensorSpec, value: Array, saved_at_ns: int) -> bool:
        """Copy a value, which is in its stored dtype.

        Return False, so that the next batch begins, if it does not fit or a batch of another step uses the buffer.
        """
        buffer, specs, nbytes = self._buffer, self.specs, spec.nbytes
        memory, begin = buffer.memory, buffer.end + LENGTH_PREFIX
        end = begin + nbytes
        is_last = buffer.end == self._begin + self.nbytes
        if len(specs) == _BATCH_VALUES or not is_last or end > len(memory):
            return False
        _pack_length(memory, buffer.end, nbytes)
        if nbytes < SMALL_BYTES:
            memory[begin:end] = value.tobytes()
        else:
            np.copyto(np.ndarray(value.shape, value.dtype, memory, begin), value)
        # No calls from here on, between which Ctrl-C could leave a part of the value's row.
        buffer.end = end
        self.nbytes = end - self._begin
        specs += (spec,)
        self.saved_at_ns += (saved_at_ns,)
        return True

    def page(self, digests: list[int]) -> Iterator[memoryview]:
        """Yield the values, each after its length, in pieces. Each comes after the digests of its values."""
        page = memoryview(self._buffer.memory)[self._begin : self._begin + self.nbytes]
        return passing_page(page, LENGTH_PREFIX, ((spec.nbytes, spec.digest_header) for spec in self.specs), digests)


@dataclass(slots=True)
class Step:
    """One step of the job."""

    mode: ModeKeys
    mode_step: int
    global_step: int
    records: list[Record | ScalarBatch | ValueBatch] = field(default_factory=list)
    """The records that were captured and not yet passed to the writer."""

    def scalar_batch(self) -> ScalarBatch:
        """Return the batch to which the next scalars are added."""
        last = self.records[-1] if self.records else None
        if not isinstance(last, ScalarBatch):
            self.records.append(last := ScalarBatch([], [], []))
        return last

    def add_small(self, buffers: BatchBuffers, spec: TensorSpec, value: Array, saved_at_ns: int) -> None:
        """Copy a small tensor, which is in its stored dtype."""
        last = self.records[-1] if self.records else None
        if not isinstance(last, ValueBatch) or not last.add(spec, value, saved_at_ns):
            batch = ValueBatch(buffers.acquire(spec.nbytes))
            batch.add(spec, value, saved_at_ns)  # a batch without values, as Ctrl-C would leave it, cannot be read
            self.records.append(batch)
