"""A storage in memory whose calls fail, wait and are interrupted as a world decides."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from simulation.disk import Disk
from tensortrial.errors import AlreadyPublished
from tensortrial.storage.base import Blocks, Buffer, ByteRange, Counts, Paths, Sink, Storage, check_path
from tensortrial.storage.foreign_errors import Action, missing, translated

if TYPE_CHECKING:
    from simulation.scheduler import Process
    from simulation.world import World

_T = TypeVar("_T")


class SimulatedStorage(Storage):
    """The run of a world, as one of its processes sees it."""

    def __init__(self, world: World, process: Process, durable: bool) -> None:
        self._world, self._process, self._durable = world, process, durable
        # Each process has a URL of its own: a reader must not make the writer of another process flush.
        self.url = f"sim://process{process.number}/run"
        self.is_local, self.keeps_time = world.disk.is_local, not world.disk.is_local

    @property
    def _disk(self) -> Disk:
        return self._world.disk

    def _call(self, name: str, path: str, action: Action, effect: Callable[[], _T]) -> _T:
        with translated(path, action), self._world.call(self._process, name, path):
            return effect()

    def _data(self, path: str) -> bytes:
        inode = self._disk.files.get(check_path(path))
        if inode is None:
            raise missing(path)
        return inode.data

    def exists_any(self) -> bool:
        return self._call("exists_any", "", "list", lambda: bool(self._disk.files))

    def read(self, path: str) -> bytes:
        return self._call("read", path, "read", lambda: self._data(path))

    def read_tail(self, path: str, length: int) -> tuple[bytes, int]:
        return self._call("read_tail", path, "read", lambda: self._tail(path, length))

    def _tail(self, path: str, length: int) -> tuple[bytes, int]:
        data = self._data(path)
        return data[max(0, len(data) - length) :], len(data)

    def read_ranges(self, ranges: Sequence[ByteRange]) -> Blocks:
        path = ranges[0].path if ranges else ""
        return self._call("read_ranges", path, "read", lambda: [self._range(each) for each in ranges])

    def read_into(self, ranges: Sequence[ByteRange], buffers: Sequence[Buffer]) -> Counts:
        blocks = self.read_ranges(ranges)
        for buffer, block in zip(buffers, blocks, strict=True):
            buffer[: len(block)] = np.frombuffer(block, np.uint8)
        return [len(block) for block in blocks]

    def _range(self, wanted: ByteRange) -> bytes:
        return self._data(wanted.path)[wanted.start : wanted.end] if wanted.length else b""

    def list(self, folder: str) -> Paths:
        prefix = f"{folder}/" if folder else ""
        paths = self._call("list", folder, "list", lambda: self._world.names(self._process, folder))
        return sorted({path[len(prefix) :].partition("/")[0] for path in paths})

    def _list_after(self, folder: str, after: str) -> Paths:
        paths = self._call("list_after", folder, "list", lambda: self._world.names(self._process, folder))
        below = [path.removeprefix(f"{folder}/") for path in paths]
        return [f"{folder}/{name}" for name in below if name.count("/") == 1 and name > after]

    def create(self, path: str, data: bytes | memoryview) -> None:
        self._call("create", path, "write", lambda: self._create(check_path(path), bytes(data)))

    def _create(self, path: str, data: bytes) -> None:
        if path in self._disk.files:
            raise AlreadyPublished(path, "a file of this name was published before")
        self._disk.put(path, data, self._durable)

    def replace(self, path: str, data: bytes | memoryview) -> None:
        if path.startswith("collections/"):
            self._world.on_claim(bytes(data))
        self._call("replace", path, "write", lambda: self._disk.put(check_path(path), bytes(data), self._durable))

    def remove(self, path: str) -> None:
        self._call("remove", path, "delete", lambda: self._disk.remove(check_path(path), self._durable))

    def touch(self, path: str) -> None:
        def set_time() -> None:
            self._data(path)
            self._disk.files[path].touched_at = self._disk.now()

        self._call("touch", path, "read", set_time)

    def written_at(self, path: str) -> tuple[float, float]:
        def times() -> tuple[float, float]:
            self._data(path)
            return self._disk.files[path].touched_at, self._disk.now()

        return self._call("written_at", path, "read", times)

    @contextmanager
    def locked(self, path: str, seconds: float) -> Iterator[None]:
        if not self.is_local:
            yield
            return
        with self._world.locked(self._process, path, seconds):
            yield

    def sync(self, path: str) -> None:
        def write() -> None:
            self._data(path)
            self._disk.sync(path)

        self._call("sync", path, "write", write)

    def sink(self, path: str) -> Sink:
        return _SimulatedSink(self, check_path(path))


class _SimulatedSink(Sink):
    """A file in memory until it is published. On a disk each write may find no space."""

    file: Any

    def __init__(self, storage: SimulatedStorage, path: str) -> None:
        self._storage, self.path = storage, path
        self.file = _File(storage, path)

    def publish(self) -> None:
        data = self.file.getvalue()
        self._storage._call("publish", self.path, "write", lambda: self._storage._create(self.path, data))

    def abort(self) -> None:
        self.file.close()


class _File(io.BytesIO):
    def __init__(self, storage: SimulatedStorage, path: str) -> None:
        super().__init__()
        self._storage, self._path = storage, path
        self._writes = 0

    def write(self, data: Any, /) -> int:
        # Each of the many small writes of a file could fail; two of them will do.
        self._writes += 1
        if self._storage.is_local and self._writes in (1, 20):
            self._storage._world.write(self._storage._process, self._path)
        return super().write(data)
