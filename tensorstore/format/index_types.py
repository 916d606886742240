"""The rows and the summary of an index file, which its writer and its readers pass on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from sys import intern
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import CorruptFile, UnknownFormat
from ..mode import ModeKeys
from .checksum import read_seal
from .footer import footer_of, num_rows, texts_of
from .schema import (
    FOOTER_CHUNKS,
    FOOTER_COMPACTED,
    FOOTER_FORMAT,
    FOOTER_NAMES,
    FOOTER_PREVIOUS,
    FOOTER_STEPS,
    FORMAT,
    INDEX,
    flush_range_of,
    flushes_in,
    is_chunk_path,
)

_KEYS = FOOTER_FORMAT, FOOTER_NAMES, FOOTER_STEPS, FOOTER_CHUNKS, FOOTER_PREVIOUS
"""The keys that every footer has."""

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
    """By the names of the statistics: the rows that have them, and the numbers, row after row."""
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

    def add_statistics(self, row: int, names: tuple[str, ...], found: Iterable[float]) -> None:
        """Add the statistics of a row."""
        rows, numbers = self.statistics.setdefault(names, ([], []))
        rows.append(row)
        numbers += found

    def close(self) -> None:
        """Find the rows that count. No rows may be added afterwards."""
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
        """Return the global steps of the file, each with its tensors and its time, as a step may be saved again."""
        names = [frozenset(each) for each in self.name_sets]
        return {(step.global_step, step.saved_at_us, names[step.name_set]) for step in self.steps}


class SavedTensor(NamedTuple):
    """One row of the index, as read. The values of a forged file are not checked yet."""

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
    """The digest of the raw value. None without a raw value, and for most values in `scalar`."""
    statistics: list[float | None] | None = None
    """In the order of STATISTICS; None if they were not requested."""
    histogram: dict[str, Any] | None = None
    sketch: Any = None
    """The sketch's values and counts as a pyarrow struct: few callers need them."""

    @property
    def has_raw(self) -> bool:
        return self.scalar is not None or self.chunk is not None


def summarize(steps: Sequence[IndexedStep], previous: str) -> IndexSummary:
    """Return the summary of the steps in the index file after `previous`.

    Most steps hold the same tensors, so each distinct set of names is kept once.
    """
    sets: dict[tuple[NamedTensor, ...], int] = {}
    known: dict[tuple[TensorSpec, ...], int] = {}
    summaries = []
    for indexed in steps:
        specs = tuple(indexed.saved)
        number = known.get(specs)
        if number is None:
            names = tuple(NamedTensor(spec.plan.name, spec.plan.collections) for spec in specs)
            number = known[specs] = sets.setdefault(names, len(sets))
        saved_at_us = max(indexed.saved_at_ns, default=0) // 1000
        step = indexed.step
        summaries.append(StepSummary(step.mode.name, step.mode_step, step.global_step, saved_at_us, number))
    chunks = dict.fromkeys(chunk for indexed in steps for _, chunk, _ in indexed.spans)
    return IndexSummary(sum(len(indexed.saved) for indexed in steps), summaries, list(sets), list(chunks), previous)


def joined(summaries: Sequence[IndexSummary]) -> IndexSummary:
    """Return one summary for the rows of several files, in the order of their flushes."""
    sets: dict[tuple[NamedTensor, ...], int] = {}
    steps = [
        step._replace(name_set=sets.setdefault(summary.name_sets[step.name_set], len(sets)))
        for summary in summaries
        for step in summary.steps
    ]
    chunks = dict.fromkeys(chunk for summary in summaries for chunk in summary.chunks)
    rows = sum(summary.rows for summary in summaries)
    return IndexSummary(rows, steps, list(sets), list(chunks), summaries[0].previous)


def footer_entries(summary: IndexSummary) -> dict[bytes, bytes]:
    """Return the key-value metadata of an index file: its format and its summary as JSON."""
    return {
        FOOTER_FORMAT: str(FORMAT).encode(),
        FOOTER_NAMES: json.dumps(summary.name_sets, separators=(",", ":")).encode(),
        FOOTER_STEPS: json.dumps(summary.steps, separators=(",", ":")).encode(),
        FOOTER_CHUNKS: json.dumps(summary.chunks, separators=(",", ":")).encode(),
        FOOTER_PREVIOUS: json.dumps(summary.previous).encode(),
    }


def read_summary(path: str, end: bytes | bytearray, size: int) -> IndexSummary:
    """Return the summary of an index file of `size` bytes, from its `end` with the seal and the footer.

    Raises:
        CorruptFile: The file is not an index file, or is damaged.
        UnknownFormat: A later release wrote the file.
    """
    if flush_range_of(path) is None:
        raise CorruptFile(path, "an index file is named after its flushes, such as 00000007.parquet")
    # The pages are verified with the rows: a file with damaged pages still says which steps it holds.
    read_seal(path, end, size)
    try:
        footer = footer_of(end)
        texts = texts_of(footer, _KEYS)
        number, rows = int(texts.get(FOOTER_FORMAT, b"")), num_rows(footer)
    except ValueError as exc:
        raise CorruptFile(path, f"it has no index footer: {exc}") from exc
    if number > FORMAT:
        reason = f"the file has format {number}, this release reads up to {FORMAT}: upgrade tensortrial"
        raise UnknownFormat(path, reason)
    try:
        name_sets = _name_sets(texts.get(FOOTER_NAMES, b""))
        steps = _step_summaries(json.loads(texts.get(FOOTER_STEPS, b"")), len(name_sets))
        chunks = list(json.loads(texts.get(FOOTER_CHUNKS, b"")))
        if bad := [chunk for chunk in chunks if not is_chunk_path(chunk)]:
            raise ValueError(f"{bad[0]!r} is not the path of a chunk")
        compacted_at = float(texts[FOOTER_COMPACTED]) if texts.get(FOOTER_COMPACTED) else None
        previous = _previous_path(path, json.loads(texts.get(FOOTER_PREVIOUS, b"")))
        return IndexSummary(rows, steps, name_sets, chunks, previous, compacted_at)
    except (KeyError, ValueError, TypeError, OverflowError, RecursionError) as exc:
        raise CorruptFile(path, f"its footer cannot be parsed: {exc}") from exc


def _step_summaries(steps: list[list[Any]], name_sets: int) -> list[StepSummary]:
    """Return the steps of a footer. Each column is checked at once, because a run may have a million steps."""
    if not steps:
        return []
    modes, *numbers = zip(*steps, strict=True)
    if unknown := set(modes) - ModeKeys.__members__.keys():
        raise ValueError(f"a step has the mode {min(map(str, unknown))!r}, which does not exist")
    for column, end in zip(numbers, (1 << 63, 1 << 63, 1 << 63, name_sets), strict=True):
        if set(map(type, column)) != {int} or min(column) < 0 or max(column) >= end:
            raise ValueError("the numbers of a step must be from 0 to 2^63 - 1, and its name set one of the file's")
    return list(map(StepSummary, map(intern, modes), *numbers))


def _previous_path(path: str, previous: Any) -> str:
    """Return the path of the index file before `path`. Raises ValueError if it cannot be one of the same worker."""
    if previous == "":
        return ""
    is_of_worker = is_index_path(previous) and previous.split("/")[:2] == path.split("/")[:2]
    if not is_of_worker or flushes_in(previous).last >= flushes_in(path).first:
        raise ValueError(f"{previous!r} cannot be the index file before this one")
    return str(previous)


def is_index_path(path: object) -> bool:
    """Return whether this may be the path of an index file."""
    if not isinstance(path, str) or "\0" in path or flush_range_of(path) is None:
        return False
    parts = path.split("/")
    return len(parts) == 4 and parts[0] == INDEX and {"", ".", ".."}.isdisjoint(parts)


@lru_cache(maxsize=64)
def _name_sets(text: bytes) -> list[tuple[NamedTensor, ...]]:
    """Return parsed name sets. Flush after flush has the same names, so they are parsed once and shared."""
    return [tuple(NamedTensor(_text(name), tuple(map(_text, of))) for name, of in names) for names in json.loads(text)]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    value.encode()  # JSON can spell characters that no text holds
    return value
