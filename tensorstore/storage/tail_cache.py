"""What was read of remote files that never change, so that nothing is fetched twice."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from .. import forking


@dataclass(frozen=True, slots=True)
class _End:
    """A file from `start` to its end."""

    start: int
    data: bytes

    @property
    def size(self) -> int:
        return self.start + len(self.data)


class FileCache:
    """The ends of files, or whole files, by path; those unused longest are forgotten once there are more than
    `most` bytes. Safe to use from several threads."""

    def __init__(self, most: int = 128 << 20) -> None:
        self._most = most
        self._bytes = 0
        self._ends: OrderedDict[str, _End] = OrderedDict()
        self._lock = threading.Lock()
        forking.register(self)

    def after_fork(self) -> None:
        """Forget everything: another thread may have been in the middle of a change."""
        self._bytes = 0
        self._ends = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, path: str, data: bytes, size: int) -> None:
        """Keep the last bytes of a file of `size` bytes, in the place of what was kept of it, unless that is more of
        the same file."""
        with self._lock:
            known = self._ends.get(path)
            if known is not None and known.size == size and len(known.data) > len(data):
                return
            self._bytes += len(data) - (len(known.data) if known else 0)
            self._ends[path] = _End(size - len(data), data)
            self._ends.move_to_end(path)
            while self._bytes > self._most and len(self._ends) > 1:
                _, forgotten = self._ends.popitem(last=False)
                self._bytes -= len(forgotten.data)

    def size(self, path: str) -> int | None:
        """How many bytes the file has, if anything of it is kept."""
        end = self._end(path)
        return None if end is None else end.size

    def read(self, path: str, start: int, length: int) -> bytes | None:
        """A part of the file, or None if it is not kept whole."""
        end = self._end(path)
        if end is None or start < end.start:
            return None
        return end.data[start - end.start : start - end.start + length]

    def missing(self, path: str) -> int | None:
        """How many bytes before the kept end are not kept; None if nothing is."""
        end = self._end(path)
        return None if end is None else end.start

    def _end(self, path: str) -> _End | None:
        with self._lock:
            end = self._ends.get(path)
            if end is not None:
                self._ends.move_to_end(path)
            return end
