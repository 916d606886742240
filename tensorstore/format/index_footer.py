"""The summary of an index file: written into its Parquet footer, and read from there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from sys import intern
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import CorruptFile, UnknownFormat
from ..mode import ModeKeys
from .checksum import read_seal, seal_needs
from .flush_range import flush_range_of
from .index_types import IndexedStep, IndexSummary, NamedTensor, StepSummary
from .schema import (
    FOOTER_CHUNKS,
    FOOTER_COMPACTED,
    FOOTER_FORMAT,
    FOOTER_NAMES,
    FOOTER_PREVIOUS,
    FOOTER_STEPS,
    FORMAT,
    INDEX,
    is_chunk_path,
)

if TYPE_CHECKING:
    from .record import TensorSpec


def summarize(steps: Sequence[IndexedStep], previous: str) -> IndexSummary:
    """Return the summary of steps, in the index file after `previous`.

    Most of them hold the same tensors, so each distinct set of names is kept once.
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


def read_summary(path: str, end: bytes, size: int) -> IndexSummary:
    """Return the summary of an index file of `size` bytes, from its `end` with the seal and the footer.

    Raises:
        CorruptFile: The file is not an index file, or is damaged.
        UnknownFormat: A later release wrote the file.
    """
    # The pages are verified with the rows: a file with damaged pages still says which steps it holds.
    read_seal(path, end, size)
    try:
        # A Parquet reader reads only the end of a file for this, so the end passes as a file.
        metadata = pq.read_metadata(pa.BufferReader(b"PAR1" + end[-seal_needs(end, size) :]))
        footer = metadata.metadata or {}
        number = int(footer[FOOTER_FORMAT])
    except (pa.ArrowException, OSError, KeyError, ValueError) as exc:
        raise CorruptFile(path, f"it has no index footer: {exc}") from exc
    if number > FORMAT:
        raise UnknownFormat(
            path, f"the file has format {number}, this release reads up to {FORMAT}: upgrade tensortrial"
        )
    try:
        name_sets = _name_sets(footer[FOOTER_NAMES])
        steps = _step_summaries(json.loads(footer[FOOTER_STEPS]), len(name_sets))
        chunks = [_chunk_path(chunk) for chunk in json.loads(footer[FOOTER_CHUNKS])]
        compacted_at = float(footer[FOOTER_COMPACTED]) if FOOTER_COMPACTED in footer else None
        previous = _previous_path(path, json.loads(footer[FOOTER_PREVIOUS]))
        return IndexSummary(metadata.num_rows, steps, name_sets, chunks, previous, compacted_at)
    except (KeyError, ValueError, TypeError, OverflowError, RecursionError) as exc:
        raise CorruptFile(path, f"its footer cannot be parsed: {exc}") from exc


def _step_summaries(steps: list[list[Any]], name_sets: int) -> list[StepSummary]:
    """Return the steps of a footer, after a check of each column: a run may have a million steps."""
    if not steps:
        return []
    modes, *numbers = zip(*steps, strict=True)
    if unknown := set(modes) - ModeKeys.__members__.keys():
        raise ValueError(f"a step has the mode {min(map(str, unknown))!r}, which does not exist")
    for column, end in zip(numbers, (1 << 63, 1 << 63, 1 << 63, name_sets), strict=True):
        if set(map(type, column)) != {int} or min(column) < 0 or max(column) >= end:
            raise ValueError("the numbers of a step must be from 0 to 2^63 - 1, and its name set one of the file's")
    return list(map(StepSummary, map(intern, modes), *numbers))


def _chunk_path(path: Any) -> str:
    if not is_chunk_path(path):
        raise ValueError(f"{path!r} is not the path of a chunk")
    return str(path)


def _previous_path(path: str, previous: Any) -> str:
    """Return the path of the index file before `path`. Raises ValueError if it cannot be one of the same worker."""
    if previous == "":
        return ""
    if is_index_path(previous) and previous.split("/")[:2] == path.split("/")[:2]:
        before, flushes = flush_range_of(previous), flush_range_of(path)
        if before is not None and (flushes is None or before.last < flushes.first):
            return str(previous)
    raise ValueError(f"{previous!r} cannot be the index file before this one")


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
