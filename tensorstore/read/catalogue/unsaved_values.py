"""Rows of chunks that hold no saved value: SQL reads chunks as they are, and the index says what counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from ...errors import CorruptFile
from ...format.arrow_arrays import numpy_of
from ...storage.open import Storage
from .counting_rows import ValueLocation, index_rows, starts_of_row_groups, value_locations


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
            CorruptFile: An index file is damaged, or names rows that a chunk does not have.
            FileNotFoundError: A file is missing.
        """
        counts = [self._counts(path, superseded.get(path, ())) for path in index_files]
        saved = Counter[str]()
        for of_file in counts:
            saved.update(of_file)
        for chunk in chunks:
            if saved[chunk] != self._num_rows[chunk]:
                naming = [path for path, of_file in zip(index_files, counts, strict=True) if chunk in of_file]
                starts = starts_of_row_groups(self._storage, chunk)
                rows = {row for path in naming for row in self._saved(path, superseded.get(path, ()), chunk, starts)}
                yield from ((chunk, row) for row in range(starts[-1]) if row not in rows)

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

    def _saved(self, path: str, left_out: Collection[int], chunk: str, starts: Sequence[int]) -> Iterator[int]:
        for rows in index_rows(self._storage, path, ValueLocation._fields, left_out):
            for at in value_locations(path, rows):
                try:
                    yield from at.rows(starts) if at.chunk == chunk else ()
                except ValueError as exc:
                    raise CorruptFile(chunk, f"an index file does not match it: {exc}") from exc
