"""The rows and the summary of an index file, as its writer and its readers pass them on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .chunk_writer import ValueSpan
from .record import Step, TensorSpec


class IndexedRow(NamedTuple):
    """What one row says of its tensor, but for where the raw value is."""

    spec: TensorSpec
    saved_at_ns: int
    scalar: float | None
    statistics: Mapping[str, float]
    histogram: tuple[list[float], list[int]] | None


@dataclass(slots=True)
class IndexedStep:
    """A step and its rows, as the writer knows them before the file is made: column by column, in the order in which
    they were saved."""

    step: Step
    specs: list[TensorSpec] = field(default_factory=list)
    saved_at_ns: list[int] = field(default_factory=list)
    scalars: list[tuple[int, Sequence[float]]] = field(default_factory=list)
    """Those of consecutive rows, with the first of these."""
    statistics: dict[int, Mapping[str, float]] = field(default_factory=dict)
    histograms: dict[int, tuple[list[float], list[int]]] = field(default_factory=dict)
    spans: list[tuple[int, str, ValueSpan]] = field(default_factory=list)
    """Of the raw values of consecutive rows: the first of these, the chunk, and where they lie there."""
    last: list[int] | None = None
    """The rows that count, if not all do: a tensor saved twice in a step keeps its last value."""

    def add(self, specs: Sequence[TensorSpec], saved_at_ns: Sequence[int]) -> int:
        """Add rows, and give the first of them."""
        first = len(self.specs)
        self.specs += specs
        self.saved_at_ns += saved_at_ns
        return first

    def close(self) -> None:
        """There will be no more rows."""
        last = {spec.plan.name: row for row, spec in enumerate(self.specs)}
        if len(last) < len(self.specs):
            self.last = sorted(last.values())

    @property
    def saved(self) -> list[TensorSpec]:
        """What the rows that count are of."""
        return self.specs if self.last is None else [self.specs[row] for row in self.last]

    def rows(self) -> Iterator[IndexedRow]:
        """The rows that count, one by one."""
        scalars = {row: scalar for first, found in self.scalars for row, scalar in enumerate(found, first)}
        for row in range(len(self.specs)) if self.last is None else self.last:
            statistics, histogram = self.statistics.get(row, {}), self.histograms.get(row)
            yield IndexedRow(self.specs[row], self.saved_at_ns[row], scalars.get(row), statistics, histogram)


class StepSummary(NamedTuple):
    mode: str
    mode_step: int
    global_step: int
    saved_at_us: int
    """Microseconds since 1970, when the last tensor of the step was saved."""
    name_set: int
    """Which of the file's name sets the step holds."""


class NamedTensor(NamedTuple):
    name: str
    collections: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """What the footer of an index file says of its rows."""

    rows: int
    steps: list[StepSummary]
    name_sets: list[tuple[NamedTensor, ...]]
    chunks: list[str]
    compacted_at: float | None = None
    """When the file took the place of others, in seconds since 1970; None for what a writer flushed."""


class SavedTensor(NamedTuple):
    """One row of the index as a reader sees it. What a foreign hand wrote into it is not checked yet."""

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
    statistics: list[float | None] | None = None
    """In the order of STATISTICS; None if the question did not ask for them."""
    histogram: dict[str, Any] | None = None

    @property
    def has_raw(self) -> bool:
        return self.scalar is not None or self.chunk is not None
