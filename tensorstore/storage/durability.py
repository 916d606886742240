"""The syncing of files and folders, so that they survive a loss of power."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress

_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
"""The command of macOS, whose fsync leaves data in the cache of the drive."""
_NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.EBADF, errno.ENOTSUP})
"""The errors of syncing a folder if the file system does not support it, such as SMB."""


def sync_file(number: int) -> None:
    """Write a file's data to the disk, given its descriptor.

    Raises:
        OSError: The data could not be written. They must not be synced again: Linux drops such pages, and the next sync
            succeeds without them.
    """
    if _FULL_SYNC is not None:
        with suppress(OSError):  # a mounted file system may lack it
            fcntl.fcntl(number, _FULL_SYNC)
            return
    os.fsync(number)


def sync_folder(folder: str) -> None:
    """Write the names in a folder to the disk. Does nothing on a file system without support. Raises OSError."""
    number = os.open(folder, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        os.fsync(number)
    except OSError as exc:
        if exc.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(number)


class DurableFolders:
    """The folders whose names are known to be on the disk.

    A file is found after a loss of power only if the name of each folder above it was synced, too. Existing folders are
    synced as well, because the worker that made one may not have synced it yet.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._known: set[str] = set()

    def sync_names(self, folder: str) -> None:
        """Sync a folder and all folders above it, so that their names are on the disk. Raises OSError.

        Folders above the root that this process may not open are left out.
        """
        sync_folder(folder)
        added = []
        while folder not in self._known and (parent := os.path.dirname(folder)) != folder:
            added.append(folder)
            try:
                sync_folder(parent)
            except PermissionError:
                if folder.startswith(f"{self._root}/"):
                    raise
            folder = parent
        self._known.update(added)
