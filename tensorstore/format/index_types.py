"""The rows and the summary of an index file, as its writer and its readers pass them on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ..statistics.sketch import Sketch
    from .chunk_writer import ValueSpan
    from .record import Step, TensorSpec


@dataclass(slots=True)
class IndexedStep:
    """A step and its rows before they are written: column by column, in the order in which they were saved."""

    step: Step
    is_ordered: bool = False
    """True if the rows were added in the order in which the job computed their tensors."""
    specs: list[TensorSpec] = field(default_factory=list)
    saved_at_ns: list[int] = field(default_factory=list)
    scalars: list[tuple[int, Sequence[float]]] = field(default_factory=list)
    """Scalars of consecutive rows, each list with its first row."""
    statistics: dict[tuple[str, ...], tuple[list[int], list[float]]] = field(default_factory=dict)
    """By the names of the statistics: the rows that have these, and the numbers, row after row."""
    histograms: dict[int, tuple[list[float], list[int]]] = field(default_factory=dict)
    sketches: dict[int, Sketch] = field(default_factory=dict)
    spans: list[tuple[int, str, ValueSpan]] = field(default_factory=list)
    """The location of the raw values of consecutive rows: the first row, the chunk, and the span in it."""
    digests: list[tuple[int, Sequence[int]]] = field(default_factory=list)
    """Digests of the raw values of consecutive rows, each list with its first row."""
    last: list[int] | None = None
    """The rows that count, or None if all do: a tensor that was saved twice in a step keeps its last value."""

    def add(self, specs: Sequence[TensorSpec], saved_at_ns: Sequence[int]) -> int:
        """Add rows, and return the first of them."""
        first = len(self.specs)
        self.specs += specs
        self.saved_at_ns += saved_at_ns
        return first

    def add_statistics(self, row: int, found: Mapping[str, float]) -> None:
        """Add the statistics of a row."""
        rows, numbers = self.statistics.setdefault(tuple(found), ([], []))
        rows.append(row)
        numbers += found.values()

    def close(self) -> None:
        """Find the rows that count. No more may be added."""
        last = {spec.plan.name: row for row, spec in enumerate(self.specs)}
        if len(last) < len(self.specs):
            self.last = sorted(last.values())

    @property
    def saved(self) -> list[TensorSpec]:
        """Return the specs of the rows that count."""
        return self.specs if self.last is None else [self.specs[row] for row in self.last]


class StepSummary(NamedTuple):
    """One step in the footer of an index file."""

    mode: str
    mode_step: int
    global_step: int
    saved_at_us: int
    """The time at which the last tensor of the step was saved: microseconds since 1970."""
    name_set: int
    """The position among the name sets of the file."""


class NamedTensor(NamedTuple):
    """The name of a tensor and the collections that it is part of."""

    name: str
    collections: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """The summary of an index file's rows in its footer."""

    rows: int
    steps: list[StepSummary]
    name_sets: list[tuple[NamedTensor, ...]]
    chunks: list[str]
    previous: str
    """The path of the worker's index file before this one, empty if it is the first."""
    compacted_at: float | None = None
    """The time at which the file superseded others, in seconds since 1970; None for a file that a writer flushed."""

    def tensors(self) -> set[tuple[int, int, frozenset[NamedTensor]]]:
        """Return the global steps that the file holds, each with its tensors and its time: it may be saved again."""
        names = [frozenset(each) for each in self.name_sets]
        return {(step.global_step, step.saved_at_us, names[step.name_set]) for step in self.steps}


class SavedTensor(NamedTuple):
    """One row of the index as it was read. What a forged file says is not checked yet."""

    name: str
    mode: str
    mode_step: int
    global_step: int
    worker: str
    dtype: str
    shape: list[int]
    nbytes: int
    scalar: float | None
    chunk: str | None
    offset: int | None
    row_group: int | None
    row: int | None
    parts: int | None
    digest: int | None = None
    """The digest of the raw value; None if there is none, and of most values in `scalar`."""
    statistics: list[float | None] | None = None
    """In the order of STATISTICS; None if they were not requested."""
    histogram: dict[str, Any] | None = None
    sketch: Any = None
    """The sketch's values and counts as a pyarrow struct: few callers need them."""

    @property
    def has_raw(self) -> bool:
        return self.scalar is not None or self.chunk is not None
