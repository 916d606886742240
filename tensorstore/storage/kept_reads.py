"""A cache of folder listings and small files, each valid until its folder or file changes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

_T = TypeVar("_T")
Entries: TypeAlias = list[os.DirEntry[str]]

_MAX_KEPT = 8192
"""The most folders and files whose content is cached. A refresh of a run with 1,000 workers reads up to 4,000."""
_TICK_NS = 100_000_000
_COARSE_TICK_NS = 5_000_000_000


class KeptReads:
    """The content of files and folders, each kept until the file or folder has changed.

    A reader of a live run rescans before each answer, and listing a thousand files takes half a millisecond.
    """

    def __init__(self) -> None:
        self._kept: dict[Any, tuple[tuple[int, int, int], Any]] = {}

    def get(self, key: Any, status: os.stat_result, read: Callable[[], _T]) -> _T:
        """Return the content of `key`, whose present state is `status`; by `read()` unless it is known."""
        # A program that copies files may set mtime, but not ctime.
        state = status.st_ino, status.st_mtime_ns, status.st_ctime_ns
        known = self._kept.get(key)
        if known is not None and known[0] == state:
            content: _T = known[1]
            return content
        is_stable = _is_stable(max(state[1:]))  # before the reading, which may take longer than a tick
        found = read()
        if is_stable:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            self._kept[key] = state, found
        return found


def _is_stable(changed_ns: int) -> bool:
    """Return whether every later change will change the time of the file or folder.

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
