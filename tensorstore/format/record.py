"""What flows from a hook to the writer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..dtypes import Array
from ..errors import UnsupportedValue
from ..mode import ModeKeys
from .buffer_pool import LENGTH_BYTES, BatchBuffer, BatchBuffers

_BATCH_VALUES = 4096


def check_name(name: Any) -> None:
    """Raise UnsupportedValue for a tensor's name that is no text, or that UTF-8 cannot encode."""
    if not isinstance(name, str):
        raise UnsupportedValue(f"a tensor's name must be text, got {name!r:.200}")
    try:
        name.encode()
    except UnicodeEncodeError as exc:
        raise UnsupportedValue(f"{name!r:.200} cannot be a tensor's name: {exc.reason}") from None


@dataclass(frozen=True, slots=True)
class Plan:
    """What is kept of one tensor. The same object serves all steps at which the same is due."""

    name: str
    collections: tuple[str, ...]
    """Every collection that the tensor is part of, sorted."""
    raw: bool
    statistics: tuple[str, ...] = ()
    histogram: bool = False
    parameter: str | None = None
    """Of a gradient: the name of the parameter that it is of."""

    only_raw: bool = field(init=False, compare=False)
    """Whether the raw value is all that is kept."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "only_raw", self.raw and not self.statistics and not self.histogram)
        check_name(self.name)


@dataclass(frozen=True, slots=True, eq=False)
class TensorSpec:
    """What the values of one tensor have in common, step after step. The same object serves all of them: what is
    written of it is encoded once a file, and not once a value."""

    plan: Plan
    dtype: str
    shape: tuple[int, ...]
    nbytes: int


class BufferOwner(Protocol):
    """Whose memory a value lies in."""

    def release(self, copy: Array) -> None:
        """Use the memory of `copy` again. Nobody may read it any more. May be called from any thread."""


@dataclass(slots=True)
class Record:
    """One tensor at one step."""

    plan: Plan
    value: Array | float
    """A host array that nobody else writes to, or a scalar. Its memory belongs to the writer from now on."""
    saved_at_ns: int
    """Nanoseconds since 1970, UTC."""
    statistics: Mapping[str, float] | None = None
    """Where the hook computed them on the tensor's device; None asks the writer to."""
    dtype: str | None = None
    """With `statistics` and no raw value, `value` is not the tensor: its dtype and shape are given here."""
    shape: tuple[int, ...] | None = None
    ready: Callable[[], object] | None = None
    """Returns when value and statistics have arrived from a device; called before either is looked at."""
    owner: BufferOwner | None = None
    """Who made `value`, and takes its memory back."""
    histogram: tuple[list[float], list[int]] | None = None
    """Its edges and counts, where whoever recorded the tensor has drawn it already and has no value to draw it from."""

    def release(self) -> None:
        """The value has been written, or is not wanted: nobody reads it any more."""
        if self.owner is not None and not isinstance(self.value, float):
            self.owner.release(self.value)
            self.owner = None


@dataclass(slots=True)
class ScalarBatch:
    """Many scalars at one step, put down together: one object for thousands of them, where each would be work for
    the garbage collector."""

    plans: list[Plan]
    values: list[float]
    saved_at_ns: list[int]
    """Nanoseconds since 1970, UTC."""

    def add(self, plan: Plan, value: float, saved_at_ns: int) -> None:
        self.plans.append(plan)
        self.values.append(value)
        self.saved_at_ns.append(saved_at_ns)


class ValueBatch:
    """Many tensors at one step of which the raw value is saved, and nothing else. The values lie one after another in
    an buffer, as a page of Parquet holds them, so that they go to the file in one piece."""

    __slots__ = ("_begin", "_buffer", "dtypes", "nbytes", "plans", "saved_at_ns", "shapes", "sizes")

    def __init__(self, buffer: BatchBuffer) -> None:
        self._buffer, self._begin = buffer, buffer.memory.tell()
        self.nbytes = 0
        """Of all values with their lengths."""
        self.plans: list[Plan] = []
        self.dtypes: list[str] = []
        self.shapes: list[tuple[int, ...]] = []
        self.sizes: list[int] = []
        """In bytes."""
        self.saved_at_ns: list[int] = []
        """Nanoseconds since 1970, UTC."""

    def add(self, plan: Plan, value: Array, dtype: str, saved_at_ns: int) -> bool:
        """Copy a value, which is in its stored dtype. False if there is no room: the next ones are batch elsewhere.
        What comes between two of these leaves the buffer alone."""
        buffer, plans, size = self._buffer, self.plans, value.nbytes
        if buffer.free_bytes < size + LENGTH_BYTES or len(plans) == _BATCH_VALUES:
            return False
        buffer.copy(value)
        self.nbytes += size + LENGTH_BYTES
        plans.append(plan)
        self.dtypes.append(dtype)
        self.shapes.append(value.shape)
        self.sizes.append(size)
        self.saved_at_ns.append(saved_at_ns)
        return True

    def page(self) -> memoryview:
        """The values, each after its length."""
        return memoryview(self._buffer.memory)[self._begin : self._begin + self.nbytes]


@dataclass(slots=True)
class Step:
    """One step of the job."""

    mode: ModeKeys
    mode_step: int
    global_step: int
    records: list[Record | ScalarBatch | ValueBatch] = field(default_factory=list)
    """Captured, and not handed to the writer yet."""

    def scalar_batch(self) -> ScalarBatch:
        """Where the next scalars go."""
        last = self.records[-1] if self.records else None
        if not isinstance(last, ScalarBatch):
            self.records.append(last := ScalarBatch([], [], []))
        return last

    def add_small(self, buffers: BatchBuffers, plan: Plan, value: Array, dtype: str, saved_at_ns: int) -> None:
        """Copy a small tensor, which is in its stored dtype."""
        last = self.records[-1] if self.records else None
        if not isinstance(last, ValueBatch) or not last.add(plan, value, dtype, saved_at_ns):
            batch = ValueBatch(buffers.acquire(value.nbytes))
            batch.add(plan, value, dtype, saved_at_ns)
            self.records.append(batch)
