"""The manifest of a closed run: one file with the ends of all index files, by which the run is opened.

It is a cache. A run without a manifest, or with a damaged, foreign or stale one, is opened by listing. A later session
makes a manifest stale. Each session has a lease, so the names of the leases show it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import CorruptFile
from ..format.checksum import check_file, read_ends, seal_needs, sealed
from ..format.documents import Count, Number, read_document
from ..format.schema import COLLECTIONS, END, FOOTER_FORMAT, FORMAT, LEASES, MANIFEST, RUN_FILE, RunInfo, current_files
from ..storage.base import Paths, Storage, Tails
from ..storage.foreign_errors import missing
from .index_files import list_index, read_index
from .workers import Workers, read_workers

FOOTER_RUN = b"tensortrial.run"
FOOTER_LEASES = b"tensortrial.leases"
MOST_FILES_AT_CLOSE = 1000
"""The most index files whose ends a closing job waits to read. `compact` writes the manifest of larger runs."""
MOST_BYTES = 256 << 20
"""The largest manifest, before compression."""
_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
    ]
)


class Part(NamedTuple):
    """A file that the manifest describes."""

    size: int
    """The size of the whole file, in bytes."""
    data: bytes
    """The bytes of the file; of an index file the end, with the footer."""


class Manifest:
    """The documents of a closed run and the ends of its index files, with the interface of a storage."""

    def __init__(self, url: str, run: str, leases: Sequence[str], parts: Mapping[str, Part]) -> None:
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
        if path not in self._parts:
            raise missing(path)
        return self._parts[path].data

    def read_tails(self, paths: Sequence[str], _: int) -> Tails:
        """Return the end of each file that the manifest has, and the size of the whole file; or the error."""
        return [
            (self._parts[path].data, self._parts[path].size) if path in self._parts else missing(path) for path in paths
        ]

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
            parts = {path: Part(size, end) for path, size, end in zip(*columns, strict=True)}
            return cls(url, entries[FOOTER_RUN].decode(), leases, parts)
        except (pa.ArrowException, KeyError, TypeError, ValueError) as exc:
            raise CorruptFile(MANIFEST, f"it cannot be parsed: {exc}") from exc


def read_manifest(storage: Storage, run: RunInfo) -> Manifest | CorruptFile | None:
    """Return the manifest of a run; None if it has none or a stale one, and the error of a damaged one."""
    try:
        manifest = Manifest.from_bytes(storage.read_document(MANIFEST, MOST_BYTES), storage.url)
    except FileNotFoundError:
        return None
    except CorruptFile as exc:
        return exc
    return manifest if manifest.run == run.id and manifest.is_current(storage) else None


@dataclass(frozen=True)
class LeaseState:
    """The content of a lease about its session."""

    worker: str
    session: Number
    num_workers: Count
    released_at: str | None = None


def write_manifest(storage: Storage, most_files: int | None = None) -> bool:
    """Write the manifest of a run in an object store, if all sessions have ended and no file is damaged.

    A session may begin at any time, and makes the manifest stale: its lease is created before it writes anything else,
    and the leases are listed here before anything else is read. Nothing is written if there are more than `most_files`
    index files. Return whether it was written. Raises StorageError.
    """
    if storage.is_local:
        return False
    leases = storage.list(LEASES)
    try:
        run = RunInfo.from_bytes(storage.read_document(RUN_FILE), storage.url)
        names = [f"{folder}/{name}" for folder in (COLLECTIONS, END) for name in storage.list(folder)]
        contents = {name: storage.read_document(name) for name in names}
        documents = {name: Part(len(data), data) for name, data in contents.items()}
        workers = read_workers(Manifest(storage.url, run.id, leases, documents))
        if not _have_closed(workers, [storage.read_document(f"{LEASES}/{name}") for name in leases]):
            return False
        names = [info.worker for info in workers.infos]
        paths = [path for name in names for path in current_files(list_index(storage, name))]
        if most_files is not None and len(paths) > most_files:
            return False
        manifest = Manifest(storage.url, run.id, leases, {**documents, **dict(_ends(storage, paths))})
        if any(read_index(manifest, name, last=workers.last_index_file(name))[0].damaged for name in names):
            return False
    except (FileNotFoundError, ValueError):
        return False  # changed meanwhile, or damaged: a reader that lists will name the file
    storage.replace(MANIFEST, manifest.to_bytes())
    return True


def _have_closed(workers: Workers, leases: Sequence[bytes]) -> bool:
    """Return whether every session of a run has ended by itself, and no document of it is damaged.

    A run that was marked as ended may continue: a process that was only suspended publishes its steps once it wakes.

    Raises:
        ValueError: A lease is damaged.
    """
    states = [read_document(data, LeaseState) for data in leases]
    if not states or workers.damaged or any(state.released_at is None for state in states):
        return False
    newest = max(states, key=lambda state: state.session)
    closed = {state.worker for state in states if state.session == newest.session}
    claimed = {info.worker for info in workers.infos if info.session == newest.session}
    return len(closed) >= newest.num_workers and claimed == closed == {*workers.ended}


def _ends(storage: Storage, paths: Sequence[str]) -> Iterator[tuple[str, Part]]:
    """Yield the end of each index file, with its footer and its checksums. Raises FileError, FileNotFoundError."""
    nbytes = 0
    for path, end in zip(paths, read_ends(storage, paths), strict=True):
        if isinstance(end, Exception):
            raise end
        data, size = end
        needed = seal_needs(data, size)
        nbytes += needed
        if nbytes > MOST_BYTES:
            raise CorruptFile(MANIFEST, "it would be too large")
        yield path, Part(size, data[-needed:])
