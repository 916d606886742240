"""Compacts a small run when it closes: its index, which was kept in memory, into one file, and its small chunks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from ..errors import AlreadyPublished, CorruptFile, MissingChunk, StorageError
from ..format.chunk_merge import merge_chunks
from ..format.index_types import IndexedStep
from ..format.index_writer import indexed_rows, publish_compacted
from ..format.schema import current_files, flushes_in, folder_of, range_path
from ..snapshot.index_files import list_index
from ..storage.open import Storage

logger = logging.getLogger(__name__)

_ROWS = 8192
"""The most rows of a small run, which take 40 ms. A larger run is compacted on request."""
_FEW_FILES = 4
_BYTES = 32 << 20
"""The most bytes in small chunks of a small run: they are copied while the training waits for its end."""


class SmallIndex:
    """The steps that a worker has published since it began the run, as long as they are few.

    It is not used for resumed runs: steps of earlier sessions are not in memory.
    """

    def __init__(self, storage: Storage, worker: str, codec: str = "none") -> None:
        self._storage, self._worker, self._codec = storage, worker, codec
        self._flushes: dict[str, list[tuple[str, Sequence[IndexedStep]]]] = {}
        self._previous: dict[str, str] = {}
        """By folder: the index file before its first one."""
        self._rows = 0

    def add(self, path: str, steps: Sequence[IndexedStep], previous: str) -> bool:
        """Keep the steps just published at `path`, after the file `previous`. Return False if the run is not small."""
        self._previous.setdefault(folder_of(path), previous)
        self._rows += sum(len(indexed.specs) for indexed in steps)
        self._flushes.setdefault(folder_of(path), []).append((path, steps))
        return self._rows <= _ROWS

    def compact(self) -> None:
        """Write one file for each folder with several. The files of the flushes stay: a reader may be reading them."""
        for flushes in self._flushes.values():
            if len(flushes) <= _FEW_FILES:
                continue
            first, path = flushes[0][0], range_path(flushes[0][0], flushes[-1][0])
            try:
                self._publish(path, [indexed for _, steps in flushes for indexed in steps])
            except (StorageError, MissingChunk, CorruptFile, pa.ArrowException) as exc:
                # Another process has compacted these files: it deletes their chunks afterwards.
                listed = list_index(self._storage, self._worker) if isinstance(exc, MissingChunk) else [first]
                if first not in current_files(listed):
                    continue
                # The run is complete without it.
                logger.warning("the index of %s was not compacted: %s", self._storage.url, exc)
                return

    def _publish(self, path: str, steps: Sequence[IndexedStep]) -> None:
        rows, summary = indexed_rows(self._worker, steps, self._previous[folder_of(path)])
        chunks = merge_chunks(self._storage, rows, self._worker, flushes_in(path), self._codec, most_bytes=_BYTES)
        if chunks is None:
            return
        summary = replace(summary, chunks=chunks.chunks())
        with suppress(AlreadyPublished):  # another process was quicker
            publish_compacted(self._storage, path, chunks.rows, summary, chunks.new)
