"""Verifies the small files of a run: JSON documents, and the findings of rules."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import FileError, NotARun
from ...format.checksum import check_file
from ...format.documents import read_document, read_object
from ...format.manifest import MOST_BYTES, Manifest
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
from ...storage.base import DOCUMENT_BYTES
from ...storage.open import Storage, StoredFile
from .checking import Findings

# What a lease says matters to writers only.
_DOCUMENTS: dict[str, Callable[[bytes, str], object]] = {
    COLLECTIONS: WorkerInfo.from_bytes,
    END: EndInfo.from_bytes,
    LOST: LostInfo.from_bytes,
    LEASES: lambda data, _: read_object(data),
}


def is_document(path: str) -> bool:
    """Return whether a path is that of a small file of a run, other than an index file."""
    folder, _, name = path.rpartition("/")
    if folder == FINDINGS:
        return name.endswith(".parquet")
    return path in (RUN_FILE, STOP_FILE, NOTES_FILE, MANIFEST) or (folder in _DOCUMENTS and name.endswith(".json"))


def check_document(storage: Storage, file: StoredFile, findings: Findings) -> None:
    """Read a small file of a run, and take note if it is damaged."""
    folder = file.path.rpartition("/")[0]
    try:
        data = storage.read_document(file.path, MOST_BYTES if file.path == MANIFEST else DOCUMENT_BYTES)
        findings.read(file.path, len(data))
        if folder == FINDINGS:
            _check_findings(data, file.path)
        elif file.path == RUN_FILE:
            RunInfo.from_bytes(data, RUN_FILE)
        elif file.path == MANIFEST:
            Manifest.from_bytes(data, storage.url)
        elif file.path == STOP_FILE:
            read_document(data, StopInfo)
        elif file.path == NOTES_FILE:
            read_object(data)
        else:
            _DOCUMENTS[folder](data, file.path)
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


def _check_findings(data: bytes, path: str) -> None:
    check_file(path, data)
    pq.ParquetFile(pa.BufferReader(data)).read(columns=FINDINGS_SCHEMA.names).cast(FINDINGS_SCHEMA)
