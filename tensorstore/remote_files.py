"""What DuckDB reads a remote run through.

fsspec's own files ask for the size of a file each time that they open it, and fetch what was fetched before: three
requests for a file of which every byte is known. A file of a run is published whole and never changes, so here its size
is asked once, and what was read of it serves again.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fsspec import AbstractFileSystem

from .errors import StorageError
from .file_cache import FileCache
from .storage_seam import ByteRange, Storage

_TAIL_BYTES = 64 << 10
_PUBLISHED = datetime(1970, 1, 1, tzinfo=UTC)


class RemoteFiles(AbstractFileSystem):  # type: ignore[misc]
    """The files of some runs, for `register_filesystem`. DuckDB names them by the run's URL and their path."""

    cachable = False

    def __init__(self, protocol: str, runs: Mapping[str, tuple[Storage, FileCache]]) -> None:
        super().__init__()
        self.protocol = protocol
        self._runs = runs

    def joined(self, other: RemoteFiles) -> RemoteFiles:
        """The files of both."""
        return RemoteFiles(self.protocol, {**self._runs, **other._runs})

    def glob(self, path: str, **_: Any) -> list[str]:
        # DuckDB looks for a pattern in each path that has one of *?[ in it, and a run may well be named 'lr=[0.1]'.
        # It is given exact paths only, so what a path matches is the path.
        return [path]

    def exists(self, path: str, **_: Any) -> bool:
        try:
            return self.size(path) >= 0
        except (FileNotFoundError, StorageError):
            return False

    def size(self, path: str) -> int:
        return self._size(*self._file(path))

    def _size(self, storage: Storage, cache: FileCache, path: str) -> int:
        size = cache.size(path)
        return storage.read_tail(path, _TAIL_BYTES)[1] if size is None else size

    def modified(self, path: str) -> datetime:
        # DuckDB compares it, to find out whether what it keeps of a file is still true. It always is.
        return _PUBLISHED

    def open(self, path: str, mode: str = "rb", **_: Any) -> io.RawIOBase:
        if mode != "rb":
            raise StorageError(path, "a run is opened for reading only")
        file = self._file(path)
        return _RemoteFile(*file, self._size(*file))

    def _file(self, path: str) -> tuple[Storage, FileCache, str]:
        """The run that has the file, and the file's path in it."""
        url = path
        while url:
            url = url.rpartition("/")[0]
            if url in self._runs:
                return *self._runs[url], path[len(url) + 1 :]
        raise FileNotFoundError(path)


class _RemoteFile(io.RawIOBase):
    """One file, open for reading at any place."""

    def __init__(self, storage: Storage, cache: FileCache, path: str, size: int) -> None:
        self._storage, self._cache, self._path, self._size = storage, cache, path, size
        self._position = 0

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, self._size - self._position)
        length = left if size is None or size < 0 else min(size, left)
        data = self._cache.read(self._path, self._position, length)
        if data is None:
            (block,) = self._storage.read_ranges([ByteRange(self._path, self._position, length)])
            data = bytes(block)
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True
