"""The manifest of a closed run: one file with the ends of all index files, by which the run is opened.

It is a cache. A run without one, or with one that is damaged, foreign or stale, is opened by listing. What makes it
stale is a later session, and each session has a lease of its own: the names of the leases tell.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import CorruptFile
from ..storage.base import Paths, Tails
from ..storage.foreign_errors import missing
from ..storage.open import Storage
from .checksum import check_file, sealed
from .schema import FOOTER_FORMAT, FORMAT, LEASES, MANIFEST, RunInfo

FOOTER_RUN = b"tensortrial.run"
FOOTER_LEASES = b"tensortrial.leases"

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
    """The documents of a closed run and the ends of its index files, as if they were read from the run."""

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
        """Return the end of each file, as far as the manifest has it, and the size of the whole file; or the error."""
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
    """Return the manifest of a run; None if it has none that describes it as it is now, the error of a damaged one.

    On a disk it is not read: to list a folder costs nothing there, and shows every change.
    """
    if storage.is_local:
        return None
    try:
        manifest = Manifest.from_bytes(storage.read_document(MANIFEST, MOST_BYTES), storage.url)
    except FileNotFoundError:
        return None
    except CorruptFile as exc:
        return exc
    return manifest if manifest.run == run.id and manifest.is_current(storage) else None
