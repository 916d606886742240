"""A cache of folder listings, each valid until its folder changes."""

from __future__ import annotations

import os
import time

_MAX_FOLDERS = 256
"""The most folders whose listings are cached."""
_TICK_NS = 100_000_000
_COARSE_TICK_NS = 5_000_000_000


class FolderListings:
    """The files in folders. A folder is listed again only when it has changed.

    A reader of a live run rescans before each answer, and listing a thousand files takes half a millisecond.
    """

    def __init__(self) -> None:
        self._listed: dict[str, tuple[tuple[int, int, int], list[str]]] = {}

    def files_in(self, folder: str) -> list[str]:
        """Return the names of the files, sorted, without those that begin with a dot."""
        try:
            status = os.stat(folder)
        except FileNotFoundError:
            return []
        # A program that copies files may set mtime, but not ctime.
        state = status.st_ino, status.st_mtime_ns, status.st_ctime_ns
        known = self._listed.get(folder)
        if known is not None and known[0] == state:
            return known[1]
        names = sorted(entry.name for entry in entries(folder) if _is_listed(entry))
        if _is_stable(max(status.st_mtime_ns, status.st_ctime_ns)):
            if len(self._listed) >= _MAX_FOLDERS:
                self._listed.clear()
            self._listed[folder] = state, names
        return names


def _is_listed(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry of a folder is a file, or a folder or link in the place of a file.

    The caller reports such a folder or link as a damaged file when it reads it.
    """
    return entry.name.endswith(".parquet") or not entry.is_dir(follow_symlinks=False)


def _is_stable(changed_ns: int) -> bool:
    """Return whether every later change will change the folder's time.

    Two changes within one tick of the file system's clock have the same time. The tick is 10 ms at most, unless the
    clock of this file system is coarser.
    """
    age = time.time_ns() - changed_ns
    return age > _COARSE_TICK_NS or (age > _TICK_NS and changed_ns % 1_000_000 != 0)


def entries(folder: str) -> list[os.DirEntry[str]]:
    """Return the entries of a folder, without the names that begin with a dot; none if the folder is missing."""
    try:
        with os.scandir(folder) as found:
            return [entry for entry in found if not entry.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []
