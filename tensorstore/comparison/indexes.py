"""The indexes of two runs in one database, and the rows in which they differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ..dtypes import Array
from ..engines.base import FilesView, Rows, RunFile
from ..engines.duckdb import DuckDBDatabase
from ..format import arrow_arrays
from ..format.schema import INDEX_SCHEMA
from ..read.trial import Trial, run_reader_of
from . import statements
from .statements import Side
from .tolerance import Tolerance

# Tensors that differ usually do so at all later steps, and those before the first one in its step at the next step, so
# the first two steps decide about most of them.
_FIRST_STEPS, _GROWTH = 2, 16
# A join has the rows of one side in memory, each of which may have statistics.
_JOINED_ROWS = 400_000

Key = tuple[str, str, str]
"""The name, mode and worker of a tensor, as both sides call them."""

_TEXT = pa.string()
_FOUND = pa.schema([("name", _TEXT), ("mode", _TEXT), ("worker", _TEXT)])
_SKIPPED = pa.schema([("mode", _TEXT), ("step", pa.int64())])
_NAMES = pa.schema([("saved_as", _TEXT), ("name", _TEXT)])


@dataclass(frozen=True)
class Counts:
    """The numbers of rows of one side: all rows, and the rows that each kind of comparison can use."""

    rows: int
    without_digest: int
    numbers: int
    """Rows without a digest, because the index has the value itself."""

    @property
    def statistics_only(self) -> int:
        return self.without_digest - self.numbers


class Indexes:
    """The indexes of two runs, which may be the same, in one database in memory."""

    def __init__(self, a: Trial, b: Trial, sides: tuple[Side, Side], tolerance: Tolerance) -> None:
        readers = run_reader_of(a), run_reader_of(b)
        self._sides, self._tolerance = sides, tolerance
        self._database = DuckDBDatabase([reader.storage for reader in readers])
        self._database.execute(statements.AGREES)
        # Each statement reads the same files, whose footers take as long to parse as the rows of a step.
        self._database.execute("set parquet_metadata_cache = true")
        for side, reader in zip(sides, readers, strict=True):
            first, end = reader.range_steps or (None, None)
            paths = reader.sources.index_files()
            left_out = reader.sources.superseded_rows()
            view = FilesView(side.view, INDEX_SCHEMA, first=first, end=end, left_out=left_out or None)
            files = [RunFile(reader.storage, path, is_exact=reader.sources.is_exact(path)) for path in paths]
            self._database.make_files_view(view, files)
        self.skip([])
        self._all_digests = False

    def close(self) -> None:
        """Release the memory."""
        self._database.close()

    def rename(self, view: str, names: Iterable[tuple[str, str]]) -> None:
        """Set the tensors of a side to compare, by the saved name and the name for the comparison."""
        self._database.put(f"names_{view}", arrow_arrays.table(_NAMES, list(names)))

    def skip(self, steps: Sequence[tuple[str, int]]) -> None:
        """Set the steps that are not compared, by mode."""
        for side in self._sides:
            side.skips = bool(steps)
        self._database.put("skipped", arrow_arrays.table(_SKIPPED, steps))

    def steps_to_join(self) -> tuple[dict[int, int], tuple[Counts, Counts]]:
        """Return the number of rows of each step in which rows may differ, ascending, and both sides' counts."""
        a, b = (self._fingerprints(side) for side in self._sides)
        common, at_a, at_b = np.intersect1d(a["step"], b["step"], assume_unique=True, return_indices=True)
        a, b = ({name: column[at] for name, column in each.items()} for each, at in ((a, at_a), (b, at_b)))
        differ = np.zeros(len(common), bool)
        for name in ("count", "fingerprint", "rest"):
            differ |= a[name] != b[name]
        self._all_digests = bool((a["digests"] == a["count"]).all() and (b["digests"] == b["count"]).all())
        rows = np.maximum(a["count"], b["count"])[differ]
        return dict(zip(common[differ].tolist(), rows.tolist(), strict=True)), (_counts(a), _counts(b))

    def _fingerprints(self, side: Side) -> dict[str, Array]:
        """Return the steps of a side with their fingerprints, which differ if the rows do, and the counts."""
        queried = self._database.columns(statements.fingerprints(side), side.parameters)
        found = {name: _plain(column) for name, column in queried.items()}
        found |= {name: np.zeros(len(found["step"]), np.uint64) for name in ("numbers", "rest")}
        if int(found["digests"].sum()) < int(found["count"].sum()):
            rest = self._database.columns(statements.fingerprints_without_digests(side), side.parameters)
            at = np.searchsorted(found["step"], _plain(rest["step"]))
            for name in ("numbers", "rest"):
                found[name][at] = _plain(rest[name])
        return found

    def differing_rows(self, steps: Mapping[int, int], found: set[Key], most: int) -> Iterator[Rows]:
        """Yield the rows that differ, batch by batch of steps.

        Args:
            steps: The steps to join, with their numbers of rows.
            found: The tensors whose first difference is known, which are left out. The caller adds to it.
            most: The number of tensors. Once all are found, no further step is read.
        """
        a, b = self._sides
        text = statements.differences(a, b, self._tolerance, self._all_digests)
        for batch in _batches(steps):
            if len(found) >= most:
                return
            self._database.put("found", arrow_arrays.table(_FOUND, sorted(found)))
            parameters = {**a.parameters, **b.parameters, "steps": batch, "first": batch[0], "last": batch[-1]}
            yield self._database.rows(text, parameters)

    def tensors_of_step(self, side: int, mode: str, step: int, worker: str) -> list[tuple[str, int | None]]:
        """Return the tensors of a step, with their positions in the order of execution."""
        chosen = self._sides[side]
        parameters = {**chosen.parameters, "of_mode": mode, "of_step": step, "of_worker": worker}
        return [(name, place) for name, place in self._database.rows(statements.tensors_of_step(chosen), parameters)]


def _batches(steps: Mapping[int, int]) -> Iterator[list[int]]:
    """Yield the steps in batches, whose numbers of steps grow up to a limit of rows."""
    batch, rows, size = list[int](), 0, _FIRST_STEPS
    for step, count in steps.items():
        if batch and (len(batch) >= size or rows + count > _JOINED_ROWS):
            yield batch
            batch, rows, size = [], 0, size * _GROWTH
        batch.append(step)
        rows += count
    if batch:
        yield batch


def _counts(found: Mapping[str, Array]) -> Counts:
    rows, digests = int(found["count"].sum()), int(found["digests"].sum())
    return Counts(rows, rows - digests, int(found["numbers"].sum()))


def _plain(column: Any) -> Array:
    return np.asarray(column.filled(0) if isinstance(column, np.ma.MaskedArray) else column)
