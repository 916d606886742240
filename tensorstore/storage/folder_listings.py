"""A cache of folder listings, each valid until its folder changes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

_T = TypeVar("_T")
Entries: TypeAlias = list[os.DirEntry[str]]

_MAX_FOLDERS = 1024
"""The most folders whose listings are cached."""
_TICK_NS = 100_000_000
_COARSE_TICK_NS = 5_000_000_000


class FolderListings:
    """The entries of folders. A folder is listed again only when it has changed.

    A reader of a live run rescans before each answer, and listing a thousand files takes half a millisecond.
    """

    def __init__(self) -> None:
        self._listed: dict[Any, tuple[tuple[int, int, int], Sequence[Any]]] = {}

    def read(
        self, folder: str, what: Callable[[Entries], Sequence[_T]], opened: Callable[[str], int], path: str
    ) -> Sequence[_T]:
        """Return the result of `what` for the entries of a folder; an empty list if the folder is missing.

        `opened(path)` opens the folder, because an open folder shows its present state, also on NFS.
        """
        try:
            number = opened(path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        try:
            status = os.fstat(number)
        finally:
            os.close(number)
        # A program that copies files may set mtime, but not ctime.
        state = status.st_ino, status.st_mtime_ns, status.st_ctime_ns
        known = self._listed.get((folder, what))
        if known is not None and known[0] == state:
            return known[1]
        is_stable = _is_stable(max(state[1:]))  # before the listing, which may take longer than a tick
        found = what(entries(folder))
        if is_stable:
            if len(self._listed) >= _MAX_FOLDERS:
                self._listed.clear()
            self._listed[folder, what] = state, found
        return found


def _is_stable(changed_ns: int) -> bool:
    """Return whether every later change will change the folder's time.

    Two changes within one tick of the file system's clock have the same time. The tick is 10 ms at most, unless the
    clock of this file system is coarser.
    """
    age = time.time_ns() - changed_ns
    return age > _COARSE_TICK_NS or (age > _TICK_NS and changed_ns % 1_000_000 != 0)


def entries(folder: str) -> Entries:
    """Return the entries of a folder, without the names that begin with a dot; none if the folder is missing."""
    try:
        with os.scandir(folder) as found:
            return [entry for entry in found if not entry.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []
