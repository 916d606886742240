"""Writes the manifest of a run that has ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..errors import CorruptFile
from ..format.checksum import read_ends, seal_needs
from ..format.documents import Count, Number, read_document
from ..format.flush_range import current_files
from ..format.manifest import MOST_BYTES, Manifest, Part
from ..format.schema import COLLECTIONS, END, LEASES, MANIFEST, RUN_FILE, RunInfo, WorkerInfo, end_path
from ..storage.base import Storage
from .index_files import list_index
from .snapshot import take

MOST_FILES_AT_CLOSE = 1000
"""A job that closes does not read the ends of more index files, for which it would wait: `compact` does."""


@dataclass(frozen=True)
class LeaseState:
    """The content of a lease about its session."""

    worker: str
    session: Number
    num_workers: Count
    released_at: str | None = None


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
        names = [f"{folder}/{name}" for folder in (COLLECTIONS, END) for name in storage.list(folder)]
        contents = {name: storage.read_document(name) for name in names}
        documents = {name: Part(len(data), data) for name, data in contents.items()}
        workers = _closed_workers([storage.read_document(f"{LEASES}/{name}") for name in leases], documents)
        if not workers:
            return False
        paths = [path for worker in workers for path in current_files(list_index(storage, worker))]
        if most_files is not None and len(paths) > most_files:
            return False
        manifest = Manifest(storage.url, run.id, leases, {**documents, **dict(_ends(storage, paths))})
        if take(storage, run, source=manifest).damaged:
            return False
    except (FileNotFoundError, ValueError):
        return False  # changed meanwhile, or damaged: a reader that lists will name the file
    storage.replace(MANIFEST, manifest.to_bytes())
    return True


def _closed_workers(leases: Sequence[bytes], documents: Mapping[str, Part]) -> list[str]:
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
