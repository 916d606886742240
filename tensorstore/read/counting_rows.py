"""The rows of index files and chunks that count, and the others.

If a worker saved a tensor again at a step, the last row counts. SQL reads whole files, so it needs a list of the other
rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..errors import CorruptFile
from ..format.arrow_arrays import encoded, numpy_of
from ..format.footer import row_groups
from ..format.index_reader import read_batches
from ..format.schema import INDEX_SCHEMA, TENSORS_SCHEMA, is_chunk_path
from ..format.verified_files import verified_files
from ..snapshot.saved_steps import StepKey
from ..storage.open import Storage

_KEY = ("worker", "global_step", "name", "mode", "mode_step")


def index_rows(
    storage: Storage, path: str, columns: Sequence[str] = tuple(INDEX_SCHEMA.names), left_out: Collection[int] = ()
) -> Iterator[pa.Table]:
    """Yield the rows of an index file, without those of some numbers. Texts are dictionaries.

    Raises:
        CorruptFile: The file is damaged.
        FileNotFoundError: The file is missing.
    """
    schema = encoded(pa.schema([INDEX_SCHEMA.field(name) for name in columns]))
    start = 0
    for rows in read_batches(path, storage.read(path), schema):
        numbers = np.arange(start, start + len(rows))
        start += len(rows)
        yield rows.filter(pa.array(~np.isin(numbers, list(left_out)))) if left_out else rows


def superseded_rows(
    storage: Storage,
    paths: Iterable[str],
    repeated: Collection[tuple[str, int, str]],
    unknown: Mapping[str, Collection[StepKey]],
    lost: Collection[tuple[str, int, str]] = (),
) -> dict[str, Sequence[int]]:
    """Return the numbers of the rows that do not count, by index file.

    Args:
        storage: The run.
        paths: The index files, in order: the last row of a tensor at a step counts.
        repeated: The tensors that have several rows: worker, global step, name.
        unknown: The steps that do not count, by worker.
        lost: The repeated tensors whose last row is in none of the files. Their other rows do not count either.

    Raises:
        FileNotFoundError: A file is missing. A damaged file gives no rows.
    """
    wanted = set(repeated)
    steps = {step for _, step, _ in wanted} | {step for of_worker in unknown.values() for *_, step in of_worker}
    last: dict[tuple[str, int, str], tuple[str, int]] = {}
    found = defaultdict[str, list[int]](list)
    for path in paths if steps else ():
        start = 0
        with suppress(CorruptFile):
            for rows in index_rows(storage, path, _KEY):
                numbers = np.flatnonzero(np.isin(numpy_of(rows["global_step"].combine_chunks()), [*steps]))
                cells = rows.take(pa.array(numbers)).to_pydict().values()
                for number, worker, step, name, *of_mode in zip((numbers + start).tolist(), *cells, strict=True):
                    key = worker, step, name
                    if (*of_mode, step) in unknown.get(worker, ()):
                        found[path].append(number)
                    elif key in wanted:
                        if key in last:
                            earlier, superseded = last[key]
                            found[earlier].append(superseded)
                        last[key] = path, number
                start += len(rows)
    for path, number in (last[key] for key in lost if key in last):
        found[path].append(number)
    return dict(found)


class ValueLocation(NamedTuple):
    """The location of a raw value: `parts` rows of a chunk, beginning at a row of a row group."""

    global_step: int
    chunk: str
    row_group: int
    row: int
    parts: int

    def rows(self, starts: Sequence[int]) -> range:
        """Return the rows of the chunk; `starts` are the first row of each row group, and the number of all rows.

        Raises:
            ValueError: The chunk does not have these rows.
        """
        if not (0 <= self.row_group < len(starts) - 1 and self.row >= 0 and 0 < self.parts <= starts[-1]):
            raise ValueError(f"it does not have the rows of {self}")
        first = starts[self.row_group] + self.row
        return range(first, first + self.parts)


def value_locations(path: str, rows: pa.Table) -> Iterator[ValueLocation]:
    """Yield the locations of the raw values that rows of the index file `path` name.

    A chunk may also hold values of unfinished steps. `rows` have the columns of `ValueLocation`.

    Raises:
        CorruptFile: A row names a file that is not a chunk.
    """
    for row in rows.filter(rows["chunk"].is_valid()).to_pylist():
        if not is_chunk_path(row["chunk"]):
            raise CorruptFile(path, f"{row['chunk']!r} is not the path of a chunk")
        yield ValueLocation(**row)


def starts_of_row_groups(storage: Storage, chunk: str) -> list[int]:
    """Return the first row of each row group of a chunk, and the number of all rows.

    Raises:
        FileNotFoundError: The chunk is missing.
        ValueError: It is not a Parquet file.
    """
    groups = row_groups(verified_files(storage).footer(chunk))
    return list(accumulate((group.rows for group in groups), initial=0))


@dataclass
class UnsavedValues:
    """The rows of chunks that belong to a step that was never finished, or to a tensor that was saved again."""

    storage: Storage
    parts: dict[str, Counter[str]] = field(default_factory=dict)
    """By index file: the number of rows of each chunk that it names, including rows that do not count."""

    def find(
        self, index_files: Sequence[str], chunks: Sequence[str], superseded: Mapping[str, Sequence[int]]
    ) -> Iterator[tuple[str, int]]:
        """Yield the unsaved rows of some chunks: the chunk, and the number of the row in it.

        Raises:
            CorruptFile: An index file is damaged.
            FileNotFoundError: A file is missing.
        """
        counts = [self._counts(path, superseded.get(path, ())) for path in index_files]
        saved = Counter[str]()
        for of_file in counts:
            saved.update(of_file)
        doubtful = [
            chunk
            for chunk in chunks
            if saved[chunk] != verified_files(self.storage).described(chunk, TENSORS_SCHEMA)[1]
        ]
        starts = {chunk: starts_of_row_groups(self.storage, chunk) for chunk in doubtful}
        rows: dict[str, set[int]] = {chunk: set() for chunk in doubtful}
        for path, of_file in zip(index_files, counts, strict=True):
            if not rows.keys().isdisjoint(of_file):
                tables = index_rows(self.storage, path, ValueLocation._fields, superseded.get(path, ()))
                for at in (ValueLocation(**row) for table in tables for row in table.to_pylist()):
                    if at.chunk in rows:
                        with suppress(ValueError, TypeError):  # a forged location, whose value the trial refuses
                            rows[at.chunk].update(at.rows(starts[at.chunk]))
        for chunk in doubtful:
            yield from ((chunk, row) for row in range(starts[chunk][-1]) if row not in rows[chunk])

    def _counts(self, path: str, left_out: Collection[int]) -> Counter[str]:
        """Return the number of rows of each chunk that an index file names."""
        if path not in self.parts or left_out:
            found = Counter[str]()
            for rows in index_rows(self.storage, path, ("chunk", "parts"), left_out):
                chunks = rows["chunk"].combine_chunks()
                codes, parts = numpy_of(chunks.indices, missing=-1), numpy_of(rows["parts"].combine_chunks())
                sums = np.bincount(codes + 1, parts, len(chunks.dictionary) + 1)[1:]  # first: rows without a chunk
                found.update(dict(zip(chunks.dictionary.to_pylist(), map(int, sums), strict=True)))
            if left_out:
                return found
            self.parts[path] = found
        return self.parts[path]
