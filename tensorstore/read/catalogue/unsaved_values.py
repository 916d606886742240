"""Rows of chunks that hold no saved value: SQL reads chunks as they are, and the index says what counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress

import numpy as np

from ...format.arrow_arrays import numpy_of
from ...storage.open import Storage
from .counting_rows import ValueLocation, index_rows, starts_of_row_groups


class UnsavedValues:
    """The rows of chunks that belong to a step that was never finished, or to a tensor that was saved again."""

    def __init__(self, storage: Storage, num_rows: Mapping[str, int]) -> None:
        """`num_rows` has the number of rows of each chunk that can be read."""
        self._storage = storage
        self._num_rows = num_rows
        self._parts: dict[str, Counter[str]] = {}
        """By index file: how many rows of each chunk it names, with those that do not count."""

    def find(
        self, index_files: Sequence[str], chunks: Sequence[str], superseded: Mapping[str, Sequence[int]]
    ) -> Iterator[tuple[str, int]]:
        """Yield the unsaved rows of some chunks: the chunk, and the number of the row in it.

        Args:
            index_files: All index files.
            chunks: The chunks that can be read.
            superseded: The rows of index files that do not count.

        Raises:
            CorruptFile: An index file is damaged.
            FileNotFoundError: A file is missing.
        """
        counts = [self._counts(path, superseded.get(path, ())) for path in index_files]
        saved = Counter[str]()
        for of_file in counts:
            saved.update(of_file)
        doubtful = [chunk for chunk in chunks if saved[chunk] != self._num_rows[chunk]]
        starts = {chunk: starts_of_row_groups(self._storage, chunk) for chunk in doubtful}
        rows: dict[str, set[int]] = {chunk: set() for chunk in doubtful}
        for path, of_file in zip(index_files, counts, strict=True):
            if not rows.keys().isdisjoint(of_file):
                for at in self._locations(path, superseded.get(path, ())):
                    if at.chunk in rows:
                        with suppress(ValueError, TypeError):  # a forged location, whose value the trial refuses
                            rows[at.chunk].update(at.rows(starts[at.chunk]))
        for chunk in doubtful:
            yield from ((chunk, row) for row in range(starts[chunk][-1]) if row not in rows[chunk])

    def _counts(self, path: str, left_out: Collection[int]) -> Counter[str]:
        """Return how many rows of each chunk an index file names."""
        if path not in self._parts or left_out:
            found = Counter[str]()
            for rows in index_rows(self._storage, path, ("chunk", "parts"), left_out):
                chunks = rows["chunk"].combine_chunks()
                codes, parts = numpy_of(chunks.indices, missing=-1), numpy_of(rows["parts"].combine_chunks())
                sums = np.bincount(codes + 1, parts, len(chunks.dictionary) + 1)[1:]  # the first is that of no chunk
                found.update(dict(zip(chunks.dictionary.to_pylist(), map(int, sums), strict=True)))
            if left_out:
                return found
            self._parts[path] = found
        return self._parts[path]

    def _locations(self, path: str, left_out: Collection[int]) -> Iterator[ValueLocation]:
        for rows in index_rows(self._storage, path, ValueLocation._fields, left_out):
            for row in rows.to_pylist():
                yield ValueLocation(**row)
