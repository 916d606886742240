"""The index of a small run: kept in memory while it is written, and written once more, as one file, when it ends."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pyarrow as pa

from .errors import AlreadyPublished, StorageError
from .flushes import folder_of, range_path
from .index import IndexedStep, write_steps_compacted
from .storage import Storage, translated

logger = logging.getLogger(__name__)

_ROWS = 8192
"""A run of more rows is not small: it is compacted when somebody asks for it. So many take 40 ms."""
_FEW_FILES = 4


class SmallIndex:
    """The steps that a worker has published since it began the run, as long as they are few.

    Of a resumed run nothing is kept: what an earlier session wrote is not in memory.
    """

    def __init__(self, storage: Storage, worker: str) -> None:
        self._storage = storage
        self._worker = worker
        self._flushes: dict[str, list[tuple[str, Sequence[IndexedStep]]]] = {}
        self._rows = 0

    def add(self, path: str, steps: Sequence[IndexedStep]) -> bool:
        """Keep what was just published at `path`. False if that is too much, and nothing will come of it."""
        self._rows += sum(len(indexed.rows) for indexed in steps)
        self._flushes.setdefault(folder_of(path), []).append((path, steps))
        return self._rows <= _ROWS

    def compact(self) -> None:
        """Write one file for each folder of several. The files of the flushes stay: somebody may be reading them."""
        for flushes in self._flushes.values():
            if len(flushes) <= _FEW_FILES:
                continue
            path = range_path(flushes[0][0], flushes[-1][0])
            try:
                self._publish(path, [indexed for _, steps in flushes for indexed in steps])
            except AlreadyPublished:
                pass  # somebody else was quicker
            except (StorageError, pa.ArrowException) as exc:
                # The run is whole without it.
                logger.warning("the index of %s was not compacted: %s", self._storage.url, exc)
                return

    def _publish(self, path: str, steps: Sequence[IndexedStep]) -> None:
        sink = self._storage.sink(path)
        try:
            with translated(path, "write"):
                write_steps_compacted(sink, self._worker, steps)
            sink.publish()
        except BaseException:
            sink.abort()
            raise
