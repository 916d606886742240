"""The manifest of a closed run: one file with the ends of all index files, by which the run is opened.

It is a cache. A run without one, or with one that is damaged, foreign or stale, is opened by listing. What makes it
stale is a later session, and each session has a lease of its own: the names of the leases tell.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import CorruptFile
from ..storage.base import Paths, Tails
from ..storage.foreign_errors import missing
from ..storage.open import Storage
from .checksum import check_file, seal_needs, sealed
from .documents import Count, Number, read_document
from .flush_range import current_files
from .index_log import IndexFiles, list_index
from .schema import (
    COLLECTIONS,
    END,
    FOOTER_FORMAT,
    FORMAT,
    LEASES,
    MANIFEST,
    RUN_FILE,
    EndInfo,
    RunInfo,
    WorkerInfo,
    end_path,
)

FOOTER_RUN = b"tensortrial.run"
FOOTER_LEASES = b"tensortrial.leases"

MOST_FILES_AT_CLOSE = 1000
"""A job that closes does not read the ends of more index files, for which it would wait: `compact` does."""
MOST_BYTES = 256 << 20
"""The largest manifest, before compression."""
_TAIL_BYTES = 64 << 10
_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
    ]
)


class _Part(NamedTuple):
    """A file that the manifest describes."""

    size: int
    """The size of the whole file, in bytes."""
    data: bytes
    """The bytes of the file; of an index file the end, with the footer."""


@dataclass(frozen=True)
class LeaseState:
    """The content of a lease about its session."""

    worker: str
    session: Number
    num_workers: Count
    released_at: str | None = None


class Manifest:
    """The documents of a closed run and the ends of its index files, as if they were read from the run."""

    def __init__(self, url: str, run: str, leases: Sequence[str], parts: Mapping[str, _Part]) -> None:
        self.url = url
        self.run = run
        """The id of the run."""
        self.leases = list(leases)
        """The names of the leases of the sessions that wrote the run."""
        self._parts = dict(parts)

    def is_current(self, storage: Storage) -> bool:
        """Return whether no session has begun since the manifest was written. Costs one listing."""
        return storage.list(LEASES) == self.leases

    def keep_ends(self, storage: Storage) -> None:
        """Let the storage keep the ends of the index files, so that it does not fetch them again."""
        for path, part in self._parts.items():
            if path.endswith(".parquet"):
                storage.keep_end(path, part.data, part.size)

    def list(self, folder: str) -> Paths:
        """Return the names of the files directly in a folder, sorted."""
        prefix = f"{folder}/"
        names = (path[len(prefix) :] for path in self._parts if path.startswith(prefix))
        return sorted(name for name in names if "/" not in name)

    def list_after(self, folder: str, after: str = "") -> Paths:
        """Return the paths of the index files below a folder, sorted: those after `after`."""
        prefix = f"{folder}/"
        return sorted(path for path in self._parts if path.startswith(prefix) and path[len(prefix) :] > after)

    def read_document(self, path: str) -> bytes:
        """Return the bytes of a document."""
        return self._part(path).data

    def read_tail(self, path: str, length: int) -> tuple[bytes, int]:
        """Return the end of a file, as far as the manifest has it, and the size of the whole file."""
        del length
        part = self._part(path)
        return part.data, part.size

    def read_tails(self, paths: Sequence[str], length: int) -> Tails:
        """Return `read_tail` of each file, or the exception that it raises."""
        return [
            (self._parts[path].data, self._parts[path].size) if path in self._parts else missing(path) for path in paths
        ]

    def _part(self, path: str) -> _Part:
        if path not in self._parts:
            raise missing(path)
        return self._parts[path]

    def to_bytes(self) -> bytes:
        """Return the manifest as a Parquet file."""
        columns = [list(self._parts), *map(list, zip(*self._parts.values(), strict=True))]
        entries = {
            FOOTER_FORMAT: str(FORMAT).encode(),
            FOOTER_RUN: self.run.encode(),
            FOOTER_LEASES: json.dumps(self.leases).encode(),
        }
        table = pa.table(columns, schema=_SCHEMA)
        sink = pa.BufferOutputStream()
        options: dict[str, Any] = {"use_dictionary": False, "write_statistics": False, "store_schema": False}
        with pq.ParquetWriter(sink, _SCHEMA, compression="zstd", write_page_checksum=True, **options) as writer:
            writer.add_key_value_metadata(entries)
            writer.write_table(table)
        return b"".join(sealed(MANIFEST, sink.getvalue()))

    @classmethod
    def from_bytes(cls, data: bytes, url: str) -> Manifest:
        """Return the manifest in a file. Raises CorruptFile."""
        check_file(MANIFEST, data)
        try:
            table = pq.read_table(pa.BufferReader(data))
            entries = table.schema.metadata or {}
            leases = json.loads(entries[FOOTER_LEASES])
            columns = (table[name].to_pylist() for name in _SCHEMA.names)
            parts = {path: _Part(size, end) for path, size, end in zip(*columns, strict=True)}
            return cls(url, entries[FOOTER_RUN].decode(), leases, parts)
        except (pa.ArrowException, KeyError, TypeError, ValueError) as exc:
            raise CorruptFile(MANIFEST, f"it cannot be parsed: {exc}") from exc


def read_manifest(storage: Storage, run: RunInfo) -> Manifest | None:
    """Return the manifest of a run; None if it has none that describes it as it is now.

    On a disk it is not read: to list a folder costs nothing there, and shows every change.

    Raises:
        CorruptFile: It is damaged, and the run is to be opened by listing.
    """
    if storage.is_local:
        return None
    try:
        manifest = Manifest.from_bytes(storage.read_document(MANIFEST, MOST_BYTES), storage.url)
    except FileNotFoundError:
        return None
    return manifest if manifest.run == run.id and manifest.is_current(storage) else None


def write_manifest(storage: Storage, most_files: int | None = None) -> bool:
    """Write the manifest of a run in an object store, if all its sessions have ended and no file of it is damaged.

    A session may begin at any time, and makes the manifest stale: its lease is created before it writes anything else,
    and the leases are listed here before anything else is read.

    Args:
        storage: The run.
        most_files: Do nothing if there are more index files.

    Returns:
        Whether it was written.

    Raises:
        StorageError: The storage refused an operation.
    """
    if storage.is_local:
        return False
    leases = storage.list(LEASES)
    try:
        run = RunInfo.from_bytes(storage.read_document(RUN_FILE), storage.url)
        documents = dict(_documents(storage))
        workers = _closed_workers([storage.read_document(f"{LEASES}/{name}") for name in leases], documents)
        if not workers:
            return False
        paths = [path for worker in workers for path in current_files(list_index(storage, worker))]
        if most_files is not None and len(paths) > most_files:
            return False
        manifest = Manifest(storage.url, run.id, leases, {**documents, **dict(_ends(storage, paths))})
        if not _is_whole(manifest, storage, workers, documents):
            return False
    except (FileNotFoundError, ValueError):
        return False  # changed meanwhile, or damaged: a reader that lists will name the file
    storage.replace(MANIFEST, manifest.to_bytes())
    return True


def _documents(storage: Storage) -> Iterator[tuple[str, _Part]]:
    for folder in (COLLECTIONS, END):
        for name in storage.list(folder):
            data = storage.read_document(f"{folder}/{name}")
            yield f"{folder}/{name}", _Part(len(data), data)


def _closed_workers(leases: Sequence[bytes], documents: Mapping[str, _Part]) -> list[str]:
    """Return the workers of a run of which every session has ended by itself; none if one may go on.

    A run that was marked as ended may go on: a process that was taken for dead publishes what it has once it wakes.

    Raises:
        ValueError: A document is damaged.
    """
    states = [read_document(data, LeaseState) for data in leases]
    claims = [
        WorkerInfo.from_bytes(part.data, path) for path, part in documents.items() if path.startswith(f"{COLLECTIONS}/")
    ]
    newest = [state for state in states if state.session == max(each.session for each in states)]
    closed = {state.worker for state in newest}
    if not newest or any(state.released_at is None for state in states):
        return []
    if len(newest) < newest[0].num_workers or any(f"{end_path(worker)}" not in documents for worker in closed):
        return []
    if any(claim.session == newest[0].session and claim.worker not in closed for claim in claims):
        return []
    return [claim.worker for claim in claims]


def _ends(storage: Storage, paths: Sequence[str]) -> Iterator[tuple[str, _Part]]:
    """Yield the end of each index file, with its footer and its checksums. Raises FileError, FileNotFoundError."""
    nbytes = 0
    for path, tail in zip(paths, storage.read_tails(paths, _TAIL_BYTES), strict=True):
        if isinstance(tail, Exception):
            raise tail
        data, size = tail
        if len(data) < min(size, 12):
            raise CorruptFile(path, "it is truncated")
        needed = seal_needs(data, size)
        if needed > len(data):
            data, size = storage.read_tail(path, needed)
        nbytes += needed
        if nbytes > MOST_BYTES:
            raise CorruptFile(MANIFEST, "it would be too large")
        yield path, _Part(size, data[len(data) - needed :])


def _is_whole(manifest: Manifest, storage: Storage, workers: Sequence[str], documents: Mapping[str, _Part]) -> bool:
    """Return whether a reader finds no damage by the manifest."""
    index_files = IndexFiles(storage)
    for worker in workers:
        end = documents.get(end_path(worker))
        last = None if end is None else EndInfo.from_bytes(end.data, end_path(worker)).last_index_file
        if last:
            index_files.expect(worker, last, end_path(worker))
        index_files.find_new(worker, source=manifest)
    return not index_files.damaged
