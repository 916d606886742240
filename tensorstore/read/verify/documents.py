"""Verifies the small files of a run: JSON documents, and the findings of rules."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import FileError, NotARun
from ...format.checksum import check_file
from ...format.documents import read_document, read_object
from ...format.schema import (
    COLLECTIONS,
    END,
    FINDINGS,
    FINDINGS_SCHEMA,
    LEASES,
    LOST,
    MANIFEST,
    NOTES_FILE,
    RUN_FILE,
    STOP_FILE,
    EndInfo,
    LostInfo,
    RunInfo,
    StopInfo,
    WorkerInfo,
)
from ...snapshot.manifest import MOST_BYTES, Manifest
from ...storage.base import DOCUMENT_BYTES
from ...storage.open import Storage, StoredFile
from .report import Findings


def _check_findings(data: bytes, path: str) -> None:
    check_file(path, data)
    pq.ParquetFile(pa.BufferReader(data)).read(columns=FINDINGS_SCHEMA.names).cast(FINDINGS_SCHEMA)


_Check = Callable[[bytes, str], object]
_FILES: dict[str, _Check] = {
    RUN_FILE: RunInfo.from_bytes,
    MANIFEST: Manifest.from_bytes,
    STOP_FILE: lambda data, _: read_document(data, StopInfo),
    NOTES_FILE: lambda data, _: read_object(data),
}
# The content of a lease matters to writers only.
_FOLDERS: dict[str, _Check] = {
    COLLECTIONS: WorkerInfo.from_bytes,
    END: EndInfo.from_bytes,
    LOST: LostInfo.from_bytes,
    LEASES: lambda data, _: read_object(data),
    FINDINGS: _check_findings,
}


def is_document(path: str) -> bool:
    """Return whether a path belongs to a small file of a run that is not an index file."""
    folder, _, name = path.rpartition("/")
    return path in _FILES or (folder in _FOLDERS and name.endswith(".parquet" if folder == FINDINGS else ".json"))


def check_document(storage: Storage, file: StoredFile, findings: Findings) -> None:
    """Read a small file of a run, and record its damage."""
    check = _FILES.get(file.path) or _FOLDERS[file.path.rpartition("/")[0]]
    try:
        data = storage.read_document(file.path, MOST_BYTES if file.path == MANIFEST else DOCUMENT_BYTES)
        findings.read(file.path, len(data))
        check(data, file.path)
    except FileNotFoundError:
        return  # replaced or removed since it was listed
    except (ValueError, FileError, NotARun, OSError, pa.ArrowException) as exc:
        findings.damaged(file.path, exc)


def read_lost(storage: Storage) -> dict[str, LostInfo]:
    """Return the marks of lost files, by the path of the file. Damaged marks are left out."""
    found = {}
    for name in storage.list(LOST):
        path = f"{LOST}/{name}"
        with suppress(ValueError, FileNotFoundError):
            info = LostInfo.from_bytes(storage.read_document(path), path)
            found[info.path] = info
    return found
