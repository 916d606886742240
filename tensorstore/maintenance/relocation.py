"""Deleting and moving of runs, unless a process writes to them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from ..errors import NotARun, RunExists, RunNotFound, StorageError
from ..format.schema import COLLECTIONS, RUN_FILE
from ..snapshot.snapshot import run_info
from ..storage.base import ByteRange, StoredFile
from ..storage.open import Storage, open_storage
from ..write.claim import REMAINS, has_remains
from ..write.lease import Observer, check_unused, remove_run

_PIECE = 16 << 20
_LOCK_SECONDS = 30.0
_CLAIM = "worker_"
"""The beginning of the names of claims, which also a run has whose `run.json` is damaged."""
_GONE = "another process has moved or deleted it"


def remove(path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> list[str]:
    """Delete a run, or what a killed deletion or move has left of one. Other files in its folder are kept.

    Args:
        path: Folder or URL of the run.
        storage_options: Options of fsspec for a URL.

    Returns:
        Paths of the kept files, relative to the run.

    Raises:
        RunNotFound: Nothing is at `path`.
        NotARun: Something else is at `path`.
        RunInUse: A living process writes to the run.
        StorageError: `path` is a symbolic link.
    """
    storage = _removable(path, storage_options, are_remains_allowed=True)
    if RUN_FILE in storage.list(""):
        with _alone(storage):
            storage.remove(RUN_FILE)
    remove_run(storage)
    _remove_empty_folders(storage)
    return [file.path for file in storage.walk()]


def move(
    path: str | os.PathLike[str], to: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
) -> str:
    """Move a run with all files in its folder. A reader finds the complete run at the old or the new place.

    A folder on the same file system is renamed. Otherwise all files are copied, `run.json` last, so that readers never
    see half a run, and then the originals are deleted. If copying fails, the copies are deleted.

    Args:
        path: Folder or URL of the run.
        to: Folder or URL to move it to. If this is an existing folder, the run moves into it.
        storage_options: Options of fsspec for URLs.

    Returns:
        Folder or URL of the moved run.

    Raises:
        RunNotFound: Nothing is at `path`, or another process has moved or deleted the run meanwhile.
        NotARun: Something else is at `path`.
        RunExists: A run or a folder with files is where the run would go.
        RunInUse: A living process writes to the run, or to another one in its folder.
        StorageError: `path` is a symbolic link, or the file system or the object store refused an operation.
    """
    source, target = _removable(path, storage_options), open_storage(to, storage_options)
    if has_remains(target):
        raise RunExists(target.url, REMAINS)
    if (os.path.isdir(target.url) if target.is_local else target.exists_any()) and RUN_FILE not in target.list(""):
        to = f"{os.fspath(to).rstrip('/')}/{source.url.rpartition('/')[2]}"
        target = open_storage(to, storage_options)
    if target.exists_any():
        raise RunExists(target.url, "a run, a folder or a file of this name is there; choose another name")
    for file in source.walk():
        folder, _, name = file.path.rpartition("/")
        if folder and name == RUN_FILE:
            inner = open_storage(f"{source.url}/{folder}", storage_options)
            check_unused(Observer(inner), inner)
    if not _renamed(source, target):
        copied = _copy_and_delete_run_file(source, target)
        # Files that were added or changed since are kept. Without run.json, they are not a run.
        for file in reversed(_in_order(copied.intersection(source.walk()))):
            source.remove(file.path)
        _remove_empty_folders(source)
    return os.fspath(to)


def _removable(
    path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None, are_remains_allowed: bool = False
) -> Storage:
    storage = open_storage(path, storage_options)
    if not storage.exists_any():
        raise RunNotFound(storage.url, "no run was found here")
    if RUN_FILE not in storage.list(""):
        has_left = has_remains(storage)
        if not (has_left and are_remains_allowed):
            raise NotARun(storage.url, REMAINS if has_left else f"it has no {RUN_FILE}, so it is not a run")
    elif not any(name.startswith(_CLAIM) for name in storage.list(COLLECTIONS)):
        run_info(storage, has_begun=False)  # raises NotARun for the file of another program
    if os.path.islink(storage.url):
        real = os.path.realpath(storage.url)
        raise StorageError(storage.url, f"it is a symbolic link to {real}; name that folder, or delete the link")
    check_unused(Observer(storage), storage)
    return storage


def _renamed(source: Storage, target: Storage) -> bool:
    """Rename a folder. Return False unless both are folders of this machine on one file system."""
    if not (source.is_local and target.is_local):
        return False
    if Path(os.path.realpath(target.url)).is_relative_to(os.path.realpath(source.url)):
        raise StorageError(target.url, "the run cannot be moved here: this is inside the run")
    try:
        Path(target.url).parent.mkdir(parents=True, exist_ok=True)
        with _alone(source):
            Path(source.url).rename(target.url)
    except RunNotFound:
        raise
    except OSError as exc:
        if exc.errno == errno.EXDEV:
            return False
        raise StorageError(target.url, f"the run cannot be moved here: {exc.strerror}") from exc
    return True


def _copy_and_delete_run_file(source: Storage, target: Storage) -> set[StoredFile]:
    """Copy all files of a folder, return them, and delete its `run.json`, so that only the copy is a run.

    If that fails, or the run is written, moved or deleted meanwhile, delete the copies.
    """
    copied: list[StoredFile] = []
    with ExitStack() as undo:
        undo.callback(_delete_copies, target, copied)
        try:
            for file in _in_order(source.walk()):
                _copy_file(source, target, file)
                copied.append(file)
        except FileNotFoundError as exc:
            raise RunNotFound(source.url, f"{_GONE}, or a file of it") from exc
        check_unused(Observer(source), source)
        with _alone(source):
            undo.pop_all()
            try:
                source.remove(RUN_FILE)
            except StorageError as exc:
                raise StorageError(source.url, f"it is copied to {target.url}, but cannot be deleted: {exc}") from exc
    return set(copied)


def _delete_copies(target: Storage, copied: Sequence[StoredFile]) -> None:
    for file in reversed(copied):
        with suppress(StorageError):
            target.remove(file.path)
    _remove_empty_folders(target)


@contextmanager
def _alone(source: Storage) -> Iterator[None]:
    """Let no other process move or delete a run in a folder of this machine at the same time.

    Raises:
        RunNotFound: Another process has done so.
    """
    with source.locked(RUN_FILE, _LOCK_SECONDS):
        if RUN_FILE not in source.list(""):
            raise RunNotFound(source.url, _GONE)
        yield


def _in_order(files: Iterable[StoredFile]) -> list[StoredFile]:
    """Return files in the order in which they are copied: claims first, which show that the rest belongs to a run."""
    return sorted(files, key=lambda file: (file.path == RUN_FILE, not file.path.startswith(f"{COLLECTIONS}/")))


def _copy_file(source: Storage, target: Storage, file: StoredFile) -> None:
    sink = target.sink(file.path)
    try:
        for offset in range(0, file.nbytes, _PIECE):
            piece = ByteRange(file.path, offset, min(_PIECE, file.nbytes - offset))
            sink.append([bytes(data) for data in source.read_ranges([piece])])
        sink.publish()
    finally:
        sink.abort()


def _remove_empty_folders(storage: Storage) -> None:
    for folder, _, _ in os.walk(storage.url, topdown=False) if storage.is_local else ():
        with suppress(OSError):  # it contains other files
            Path(folder).rmdir()
