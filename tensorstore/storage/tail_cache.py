"""A cache of the ends of remote files. Files never change, so nothing is fetched twice."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from .. import forking


@dataclass(frozen=True, slots=True)
class _End:
    """A file's bytes from `start` to its end."""

    start: int
    data: bytes

    @property
    def size(self) -> int:
        return self.start + len(self.data)


class TailCache:
    """The ends of files, or whole files, by path. Safe to use from several threads.

    Above `max_bytes`, the least recently used ones are dropped.
    """

    def __init__(self, max_bytes: int = 128 << 20) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._ends: OrderedDict[str, _End] = OrderedDict()
        self._lock = threading.Lock()
        forking.register(self)

    def after_fork(self) -> None:
        """Forget everything, because another thread may have been changing the cache at the fork."""
        self._bytes = 0
        self._ends = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, path: str, data: bytes, size: int) -> None:
        """Keep the last bytes of a file of `size` bytes.

        They replace the cached bytes, unless the file has the same size and more bytes of it are cached.
        """
        with self._lock:
            known = self._ends.get(path)
            if known is not None and known.size == size and len(known.data) > len(data):
                return
            self._bytes += len(data) - (len(known.data) if known else 0)
            self._ends[path] = _End(size - len(data), data)
            self._ends.move_to_end(path)
            while self._bytes > self._max_bytes and len(self._ends) > 1:
                _, forgotten = self._ends.popitem(last=False)
                self._bytes -= len(forgotten.data)

    def size(self, path: str) -> int | None:
        """Return the file's size in bytes; None if it is not cached."""
        end = self._end(path)
        return None if end is None else end.size

    def read(self, path: str, start: int, length: int) -> bytes | None:
        """Return a part of the file; None if it is not completely cached."""
        end = self._end(path)
        if end is None or start < end.start:
            return None
        return end.data[start - end.start : start - end.start + length]

    def missing(self, path: str) -> int | None:
        """Return the number of bytes before the cached end; None if nothing is cached."""
        end = self._end(path)
        return None if end is None else end.start

    def _end(self, path: str) -> _End | None:
        with self._lock:
            end = self._ends.get(path)
            if end is not None:
                self._ends.move_to_end(path)
            return end
