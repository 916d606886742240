"""The file system through which DuckDB reads the files of runs. It reads nothing else, and writes nothing.

fsspec's own file objects request the size each time they open a file, and fetch bytes again: three requests for a file
that is already in memory. A file of a run never changes, so its size is requested once, and its bytes are cached.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from fsspec import AbstractFileSystem

from ..errors import StorageError
from .base import ByteRange, ReadableRanges

_PUBLISHED = datetime(1970, 1, 1, tzinfo=UTC)
_READ_MODES = ("r", "rb")

Find = Callable[[str], tuple[ReadableRanges, str]]


class RunFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The files that `find` knows, for `register_filesystem`.

    fsspec's writing methods raise NotImplementedError. Those that use `open` are refused here.
    """

    cachable = False

    def __init__(self, protocol: str, find: Find) -> None:
        super().__init__()
        self.protocol = protocol
        self._find = find

    def glob(self, path: str, **_: Any) -> list[str]:
        # DuckDB receives exact paths only, and a name may contain characters of a glob.
        return [path]

    def exists(self, path: str, **_: Any) -> bool:
        try:
            return self.size(path) >= 0
        except (FileNotFoundError, StorageError):
            return False

    def isdir(self, path: str) -> bool:
        del path
        return False

    def size(self, path: str) -> int:
        files, name = self._find(path)
        return files.size(name)

    def modified(self, path: str) -> datetime:
        # DuckDB compares it to check its cache of a file, which is always valid.
        del path
        return _PUBLISHED

    def open(self, path: str, mode: str = "rb", **_: Any) -> io.RawIOBase:
        if mode not in _READ_MODES:
            raise StorageError(path, "a run is opened for reading only")
        files, name = self._find(path)
        return _RunFile(files, name)


class _RunFile(io.RawIOBase):
    """One file, open for reading at any position.

    DuckDB reads a file in several threads through one object, by a `seek` and a `read`. Another thread may run between
    the two, so every thread has its own position.
    """

    def __init__(self, files: ReadableRanges, path: str) -> None:
        self._files, self._path, self._size = files, path, files.size(path)
        self._positions: dict[int, int] = {}

    @property
    def _position(self) -> int:
        return self._positions.get(threading.get_ident(), 0)

    @_position.setter
    def _position(self, position: int) -> None:
        self._positions[threading.get_ident()] = position

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, self._size - self._position)
        length = left if size is None or size < 0 else min(size, left)
        (block,) = self._files.read_ranges([ByteRange(self._path, self._position, length)])
        self._position += len(block)
        return bytes(block)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True
