"""Storage behind any fsspec filesystem, by the calls that all of them have. fsspec is imported on first use."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ..errors import AlreadyPublished, ConfigurationError, MissingExtra
from ..forking import Lock
from ..parallel import in_threads
from .base import TAKEN, Blocks, Buffer, ByteRange, Counts, Paths, Sink, Storage, StoredFile, Tails, check_path, join
from .foreign_errors import Action, translated
from .ranges import batches, merge
from .tail_cache import TailCache

PARALLEL = 16
"""The most concurrent requests of one call."""
_TAIL_BYTES = 64 << 10
_PREFETCHED = 4 << 20
"""A query fetches the whole rest of a file up to this many bytes. DuckDB reads parts of a larger one."""


class FsspecStorage(Storage):
    """The folder of a run behind any fsspec filesystem."""

    is_local = False

    def __init__(self, url: str, protocol: str, address: str, options: Mapping[str, Any]) -> None:
        self.url = url
        self._protocol, self._address, self._options = protocol, address, dict(options)
        self._cache = TailCache()
        self._connect()

    def __reduce__(self) -> tuple[Any, ...]:
        # The options are pickled, because the other process needs their credentials.
        return type(self), (self.url, self._protocol, self._address, self._options)

    def _connect(self) -> None:
        self._process = os.getpid()
        kind = _filesystem_class(self._protocol)
        # fsspec caches an instance for equal arguments: a session takes 0.1 s, and a hundred runs of one bucket share
        # it. Its cache of listings is off, because it would hide files of other processes.
        try:
            parameters = {**kind._get_kwargs_from_urls(self._address), **self._options, "use_listings_cache": False}
            self._root = str(kind._strip_protocol(self._address)).rstrip("/")
            with self._translated(self.url, "list"):  # some filesystems connect immediately
                self._filesystem = kind(**parameters)
        except ValueError as exc:
            raise ConfigurationError(
                f"{self.url} is not a URL that its file system accepts: {type(exc).__name__}"
            ) from None

    @property
    def fs(self) -> Any:
        """The filesystem. A forked child makes a new one, because the parent's uses a thread that the child lacks."""
        if self._process != os.getpid():
            # The parent's is kept alive, because closing it would remove the parent's sockets from the shared event
            # queue.
            _inherited.append(self._filesystem)
            self._connect()
        return self._filesystem

    def prefetch(self, paths: Sequence[str]) -> None:
        # A file that cannot be fetched is skipped, because reading it later reports the error.
        unknown = [path for path in paths if self._cache.missing(path) is None]
        self.read_tails(unknown, _TAIL_BYTES)
        rest = {path: self._cache.missing(path) or 0 for path in paths}
        wanted = [ByteRange(path, 0, length) for path, length in rest.items() if 0 < length <= _PREFETCHED]
        for span, data in zip(wanted, self._spans(wanted), strict=True):
            if not isinstance(data, Exception) and len(data) == span.length:
                self._keep_front(span, bytes(data))

    def keep_end(self, path: str, data: bytes, size: int) -> None:
        self._cache.keep(path, data, size)

    def _keep_front(self, span: ByteRange, data: bytes) -> None:
        size = self._cache.size(span.path) or 0
        tail = self._cache.read(span.path, span.length, size - span.length)
        if tail is not None:
            self._cache.keep(span.path, data + tail, size)

    def _translated(self, path: str, action: Action) -> translated:
        return translated(path, action, options=self._options)

    def exists_any(self) -> bool:
        with self._translated(self.url, "list"):
            return bool(self._entries("")) or bool(self._root and self.fs.isfile(self._root))

    def read(self, path: str) -> bytes:
        with self._translated(path, "read"):
            return bytes(self.fs.cat_file(self._full(path)))

    def _read_front(self, path: str, length: int) -> bytes:
        with self._translated(path, "read"):
            return bytes(self.fs.cat_file(self._full(path), start=0, end=length))

    def read_tail(self, path: str, length: int) -> tuple[bytes, int]:
        with self._translated(path, "read"):
            size = int(self.fs.info(self._full(path))["size"])
            data = bytes(self.fs.cat_file(self._full(path), start=max(0, size - length), end=size))
        self._cache.keep(path, data, size)
        return data, size

    def size(self, path: str) -> int:
        known = self._cache.size(path)
        return self.read_tail(path, _TAIL_BYTES)[1] if known is None else known

    def read_tails(self, paths: Sequence[str], length: int) -> Tails:
        return in_threads(lambda path: self._tail_or_error(path, length), paths, PARALLEL)

    def read_ranges(self, ranges: Sequence[ByteRange]) -> Blocks:
        merged = merge(ranges)
        found: Blocks = [b""] * len(ranges)
        for read, data in zip(merged, self._read_spans([each.span for each in merged]), strict=True):
            for index, part in read.cut(data):
                found[index] = part
        return found

    def read_into(self, ranges: Sequence[ByteRange], buffers: Sequence[Buffer]) -> Counts:
        counts = [0] * len(ranges)
        for batch in batches(ranges):
            blocks = self.read_ranges([piece for _, _, piece in batch])
            for (index, offset, _), block in zip(batch, blocks, strict=True):
                buffers[index][offset : offset + len(block)] = np.frombuffer(block, np.uint8)
                counts[index] += len(block)
            del blocks, block  # before the next batch is read
        return counts

    def _read_spans(self, spans: Sequence[ByteRange]) -> Blocks:
        found: dict[ByteRange, bytes | bytearray] = {}
        for span in spans:
            kept = self._cache.read(span.path, span.start, span.length)
            if kept is not None:
                found[span] = kept
        wanted = [span for span in spans if span not in found]
        for span, data in zip(wanted, self._spans(wanted) if wanted else (), strict=True):
            if isinstance(data, Exception):
                with self._translated(span.path, "read"):
                    raise data
            found[span] = bytes(data)
        return [found[span] for span in spans]

    def _spans(self, spans: Sequence[ByteRange]) -> Sequence[bytes | Exception]:
        """Return the bytes of each span, or the exception that reading it raises."""
        ends = [span.start + span.length for span in spans]
        with self._translated(spans[0].path if spans else "", "read"):
            paths = [self._full(span.path) for span in spans]
            return self.fs.cat_ranges(paths, [span.start for span in spans], ends, on_error="return")

    def list(self, folder: str) -> Paths:
        with self._translated(join(self.url, folder) if folder else self.url, "list"):
            return sorted(self._entries(folder))

    def walk(self) -> Iterator[StoredFile]:
        with self._translated(self.url, "list"):
            found = self.fs.find(self._root, detail=True)
        # Some file systems begin all names with a slash.
        begin = len(self._root.strip("/")) + 1
        named = {name.strip("/")[begin:]: info for name, info in found.items()}
        yield from (StoredFile(path, int(named[path].get("size") or 0)) for path in sorted(named) if path)

    def _list_after(self, folder: str, after: str) -> Paths:
        found = []
        with self._translated(join(self.url, folder), "list"):
            for sub, kind in self._entries(folder).items():
                stem = f"{sub}/"
                if kind == "directory" and (stem > after or after.startswith(stem)):
                    files = self._entries(join(folder, sub)).items()
                    found += [stem + name for name, kind in files if kind == "file" and stem + name > after]
        return [join(folder, name) for name in sorted(found)]

    def _entries(self, folder: str) -> dict[str, str]:
        """Return the type of each entry of the folder by name, without names that begin with a dot."""
        parent = self._full(folder) if folder else self._root
        try:
            infos = self.fs.ls(parent, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        named = {info["name"].rstrip("/").rpartition("/"): str(info["type"]) for info in infos}
        # `ls` of a file returns the file itself, which is no entry of it.
        below = ((name, kind) for (above, _, name), kind in named.items() if above.strip("/") == parent.strip("/"))
        return {name: kind for name, kind in below if name and not name.startswith(".")}

    def create(self, path: str, data: bytes | memoryview) -> None:
        with self._translated(path, "write"), _creating:
            # The lock is for threads, because fsspec checks first and writes afterwards.
            if self.fs.exists(self._full(path)):
                raise AlreadyPublished(path, TAKEN)
            try:
                self._pipe(path, data, mode="create")
            except FileExistsError as exc:
                raise AlreadyPublished(path, TAKEN) from exc

    def replace(self, path: str, data: bytes | memoryview) -> None:
        with self._translated(path, "write"):
            self._pipe(path, data, mode="overwrite")

    def _pipe(self, path: str, data: bytes | memoryview, mode: str) -> None:
        full = self._full(path)
        try:
            self.fs.pipe_file(full, bytes(data), mode=mode)
        except FileNotFoundError:
            self.fs.makedirs(full.rpartition("/")[0], exist_ok=True)
            self.fs.pipe_file(full, bytes(data), mode=mode)

    def remove(self, path: str) -> None:
        with self._translated(path, "delete"), suppress(FileNotFoundError):
            self.fs.rm_file(self._full(path))

    def touch(self, path: str) -> None:
        self.replace(path, self.read(path))

    def written_at(self, path: str) -> tuple[float, float]:
        with self._translated(path, "read"):
            return self.fs.modified(self._full(path)).timestamp(), time.time()

    def sink(self, path: str) -> Sink:
        return _BufferSink(self, check_path(path))

    def _full(self, path: str) -> str:
        return f"{self._root}/{check_path(path)}"


class _BufferSink(Sink):
    """A file in memory until it is published: object stores take a file in one piece."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage, self.path = storage, path
        # It grows without copying, and `getvalue` is not a copy, because a chunk may have gigabytes.
        self.file = io.BytesIO()

    def publish(self) -> None:
        self._storage.create(self.path, self.file.getvalue())
        self.file.close()

    def abort(self) -> None:
        self.file.close()


_creating = Lock()
_inherited: list[Any] = []


def _filesystem_class(protocol: str) -> Any:
    import fsspec

    try:
        return fsspec.get_filesystem_class(protocol)
    except ImportError as exc:
        if protocol == "s3":
            raise MissingExtra("s3fs", "s3", "an s3:// run") from exc
        raise ConfigurationError(f"{protocol}:// runs need a package that is not installed: {exc}") from exc
    except ValueError as exc:
        raise ConfigurationError(f"{protocol}:// cannot hold a run; pass a path, or s3://bucket/folder") from exc
