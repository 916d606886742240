"""Deleting and moving a run, but never one that a process writes to."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import NotARun, RunExists, RunNotFound, StorageError
from ..format.schema import RUN_FILE
from ..storage.base import ByteRange
from ..storage.open import Storage, open_storage
from ..write.lease import Observer
from ..write.removal import check_removable, remove_run

_PIECE = 16 << 20


def remove(path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> list[str]:
    """Delete a run. Files of other kinds in its folder stay.

    Args:
        path: Folder or URL of the run.
        storage_options: Options of fsspec for a URL.

    Returns:
        Paths of the files that stay, relative to the run.

    Raises:
        RunNotFound: Nothing is at `path`.
        NotARun: Something else is at `path`.
        RunInUse: A living process writes to the run.
    """
    storage = _removable(path, storage_options)
    remove_run(storage)
    _remove_empty_folders(path)
    return [file.path for file in storage.walk()]


def move(
    path: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> str:
    """Move a run with all files in its folder. A reader finds it at the one place or at the other, whole.

    A folder on the same file system is renamed. Otherwise all files are copied, `run.json` last, so that nobody takes
    half a run for one, and then deleted.

    Args:
        path: Folder or URL of the run.
        to: Folder or URL to move it to. If this is a folder already, the run moves into it.
        storage_options: Options of fsspec for URLs.

    Returns:
        Folder or URL of the moved run.

    Raises:
        RunNotFound: Nothing is at `path`.
        NotARun: Something else is at `path`.
        RunExists: A run or a folder with files is where the run would go.
        RunInUse: A living process writes to the run.
        StorageError: The file system or the object store refused an operation.
    """
    source, target = _removable(path, storage_options), open_storage(to, storage_options)
    if target.exists_any() and RUN_FILE not in target.list(""):
        name = os.fspath(path).rstrip("/").rpartition("/")[2]
        to = f"{os.fspath(to).rstrip('/')}/{name}"
        target = open_storage(to, storage_options)
    if target.exists_any():
        raise RunExists(target.url, "a run or a folder of this name is there; choose another name")
    if not _renamed(path, to):
        _copy(source, target)
        for file in list(source.walk()):
            source.remove(file.path)
        _remove_empty_folders(path)
    return os.fspath(to)


def _removable(path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None) -> Storage:
    storage = open_storage(path, storage_options)
    if not storage.exists_any():
        raise RunNotFound(storage.url, "no run was found here")
    if RUN_FILE not in storage.list(""):
        raise NotARun(storage.url, f"it has no {RUN_FILE}, so it is not a run")
    check_removable(Observer(storage), storage)
    return storage


def _renamed(path: str | os.PathLike[str], to: str | os.PathLike[str]) -> bool:
    """Rename a folder. Return False if one of the two is a URL, or on another file system."""
    if "://" in os.fspath(to) or not Path(path).is_dir():
        return False
    try:
        Path(to).parent.mkdir(parents=True, exist_ok=True)
        Path(path).rename(to)
    except OSError as exc:
        if exc.errno == errno.EXDEV:
            return False
        raise StorageError(os.fspath(to), f"the run cannot be moved here: {exc.strerror}") from exc
    return True


def _copy(source: Storage, target: Storage) -> None:
    for file in sorted(source.walk(), key=lambda file: file.path == RUN_FILE):
        sink = target.sink(file.path)
        try:
            for offset in range(0, file.nbytes, _PIECE):
                piece = ByteRange(file.path, offset, min(_PIECE, file.nbytes - offset))
                sink.append([bytes(data) for data in source.read_ranges([piece])])
            sink.publish()
        except BaseException:
            sink.abort()
            raise


def _remove_empty_folders(path: str | os.PathLike[str]) -> None:
    for folder, _, _ in os.walk(path, topdown=False):
        with suppress(OSError):  # files of other kinds are in it
            Path(folder).rmdir()
