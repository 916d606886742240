"""A run in an object store, or anywhere else that fsspec reaches. Only this file imports fsspec, and only when used.

`FsspecStorage` asks any fsspec filesystem, with the calls that all of them have. `S3Storage` speaks S3's own requests
through s3fs, because what makes a run cheap to follow is not in fsspec's vocabulary: listing from a key on, reading
the end of a file without asking for its size first, and putting a file only where there is none.
"""

from __future__ import annotations

import functools
import os
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from ..errors import AlreadyPublished, ConfigurationError, MissingExtra
from ..forking import call_in_child
from .base import (
    Blocks,
    ByteRange,
    Paths,
    Sink,
    Storage,
    Tails,
    check_path,
    http_status,
    join,
    translated,
)
from .ranges import merge
from .tail_cache import FileCache

_T = TypeVar("_T")

_PARALLEL = 16
"""Requests under way at once, of one call."""
_TAIL_BYTES = 64 << 10
_PREFETCHED = 4 << 20
"""A file that misses no more than this is fetched whole before it is queried; of a larger one DuckDB reads parts."""
_ATTEMPTS = 4
_CONNECTIONS = 2 * _PARALLEL
"""botocore's own limit of 10 would make the calls of two threads wait for each other."""


class FsspecStorage(Storage):
    """A run behind any fsspec filesystem."""

    is_local = False

    def __init__(self, url: str, protocol: str, address: str, options: Mapping[str, Any]) -> None:
        self.url = url
        self._protocol, self._address, self._options = protocol, address, dict(options)
        self._cache = FileCache()
        self._connect()

    def __reduce__(self) -> tuple[Any, ...]:
        # The options go along, and with them the credentials that the other process needs.
        return type(self), (self.url, self._protocol, self._address, self._options)

    def _connect(self) -> None:
        self._process = os.getpid()
        kind = _filesystem_class(self._protocol)
        # fsspec keeps one instance for equal arguments, and that is wanted: a session costs 0.1 s, and a hundred runs
        # of one bucket share it. The listings cache is not: it would hide what other processes write.
        parameters = {**kind._get_kwargs_from_urls(self._address), **self._options, "use_listings_cache": False}
        self._filesystem = kind(**parameters)
        self._root = str(kind._strip_protocol(self._address)).rstrip("/")

    @property
    def fs(self) -> Any:
        """The filesystem. A forked child makes its own: the parent's runs on a thread that the child does not have."""
        if self._process != os.getpid():
            # Kept alive unused: closing it would take the parent's sockets off the event queue that both share.
            _inherited.append(self._filesystem)
            self._connect()
        return self._filesystem

    def prefetch(self, paths: Sequence[str]) -> None:
        # A file that cannot be fetched is left to whoever asks for it by itself, and can say so.
        unknown = [path for path in paths if self._cache.missing(path) is None]
        self.read_tails(unknown, _TAIL_BYTES)
        rest = {path: self._cache.missing(path) or 0 for path in paths}
        wanted = [ByteRange(path, 0, length) for path, length in rest.items() if 0 < length <= _PREFETCHED]
        for span, data in zip(wanted, self._spans(wanted), strict=True):
            if not isinstance(data, Exception) and len(data) == span.length:
                self._keep_front(span, bytes(data))

    def _keep_front(self, span: ByteRange, data: bytes) -> None:
        size = self._cache.size(span.path) or 0
        tail = self._cache.read(span.path, span.length, size - span.length)
        if tail is not None:
            self._cache.keep(span.path, data + tail, size)

    def exists_any(self) -> bool:
        with translated("", "list"):
            return bool(self._entries("")) or bool(self._root and self.fs.isfile(self._root))

    def read(self, path: str) -> bytes:
        with translated(path, "read"):
            return bytes(self.fs.cat_file(self._full(path)))

    def read_tail(self, path: str, length: int) -> tuple[bytes, int]:
        with translated(path, "read"):
            size = int(self.fs.info(self._full(path))["size"])
            data = bytes(self.fs.cat_file(self._full(path), start=max(0, size - length), end=size))
        self._cache.keep(path, data, size)
        return data, size

    def size(self, path: str) -> int:
        known = self._cache.size(path)
        return self.read_tail(path, _TAIL_BYTES)[1] if known is None else known

    def read_tails(self, paths: Sequence[str], length: int) -> Tails:
        return _outcomes(lambda path: self.read_tail(path, length), paths)

    def read_ranges(self, ranges: Sequence[ByteRange]) -> Blocks:
        merged = merge(ranges)
        found: Blocks = [b""] * len(ranges)
        for read, data in zip(merged, self._read_spans([each.span for each in merged]), strict=True):
            for place, part in read.cut(data):
                found[place] = part
        return found

    def _read_spans(self, spans: Sequence[ByteRange]) -> Blocks:
        found: dict[ByteRange, bytes | bytearray] = {}
        for span in spans:
            kept = self._cache.read(span.path, span.start, span.length)
            if kept is not None:
                found[span] = kept
        wanted = [span for span in spans if span not in found]
        for span, data in zip(wanted, self._spans(wanted) if wanted else (), strict=True):
            found[span] = _bytes_or_raise(span.path, data)
        return [found[span] for span in spans]

    def _spans(self, spans: Sequence[ByteRange]) -> Sequence[bytes | Exception]:
        """The bytes of each span, or why there are none."""
        ends = [span.start + span.length for span in spans]
        with translated(spans[0].path if spans else "", "read"):
            paths = [self._full(span.path) for span in spans]
            found: list[bytes | Exception] = self.fs.cat_ranges(
                paths, [span.start for span in spans], ends, on_error="return"
            )
            return found

    def list(self, folder: str) -> Paths:
        with translated(folder, "list"):
            return sorted(self._entries(folder))

    def _list_after(self, folder: str, after: str) -> Paths:
        found = []
        with translated(folder, "list"):
            for sub, kind in self._entries(folder).items():
                stem = f"{sub}/"
                if kind == "directory" and (stem > after or after.startswith(stem)):
                    files = self._entries(join(folder, sub)).items()
                    found += [stem + name for name, kind in files if kind == "file" and stem + name > after]
        return [join(folder, name) for name in sorted(found)]

    def _entries(self, folder: str) -> dict[str, str]:
        """The type of each entry of the folder by name, without the names that begin with a dot."""
        parent = self._full(folder) if folder else self._root
        try:
            infos = self.fs.ls(parent, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        named = {info["name"].rstrip("/").rpartition("/"): str(info["type"]) for info in infos}
        # `ls` of a file gives the file itself, which is no entry of it.
        below = ((name, kind) for (above, _, name), kind in named.items() if above.strip("/") == parent.strip("/"))
        return {name: kind for name, kind in below if name and not name.startswith(".")}

    def create(self, path: str, data: bytes | memoryview) -> None:
        with translated(path, "write"), _creating:
            # The lock makes threads exclude each other where fsspec itself looks first and writes after.
            if self.fs.exists(self._full(path)):
                raise AlreadyPublished(path, _TAKEN)
            try:
                self._pipe(path, data, mode="create")
            except FileExistsError as exc:
                raise AlreadyPublished(path, _TAKEN) from exc

    def replace(self, path: str, data: bytes | memoryview) -> None:
        with translated(path, "write"):
            self._pipe(path, data, mode="overwrite")

    def _pipe(self, path: str, data: bytes | memoryview, mode: str) -> None:
        full = self._full(path)
        try:
            self.fs.pipe_file(full, bytes(data), mode=mode)
        except FileNotFoundError:
            self.fs.makedirs(full.rpartition("/")[0], exist_ok=True)
            self.fs.pipe_file(full, bytes(data), mode=mode)

    def remove(self, path: str) -> None:
        with translated(path, "delete"), suppress(FileNotFoundError):
            self.fs.rm_file(self._full(path))

    def touch(self, path: str) -> None:
        self.replace(path, self.read(path))

    def written_at(self, path: str) -> tuple[float, float]:
        with translated(path, "read"):
            return self.fs.modified(self._full(path)).timestamp(), time.time()

    def sink(self, path: str) -> Sink:
        return _BufferSink(self, check_path(path))

    def _full(self, path: str) -> str:
        return f"{self._root}/{check_path(path)}"


class S3Storage(FsspecStorage):
    """A run in a bucket of S3, or of a server that speaks its protocol."""

    keeps_time = True

    def _connect(self) -> None:
        super()._connect()
        self._connected = False
        self._bucket, self._prefix, _ = self._filesystem.split_path(self._root)
        self._prefix = f"{self._prefix}/" if self._prefix else ""

    @property
    def fs(self) -> Any:
        filesystem = super().fs
        if not self._connected:
            try:
                filesystem.connect()  # makes the client; asks nothing of the bucket yet
            except (TypeError, ValueError) as exc:
                raise ConfigurationError(f"s3:// does not take these storage_options: {exc}") from exc
            self._connected = True
        return filesystem

    def _place(self, path: str) -> str:
        return f"bucket {self._bucket!r}, key {self._prefix + path!r}"

    def exists_any(self) -> bool:
        with translated("", "list", self._place("")):
            return any(page.get("Contents") for page in self._pages("", MaxKeys=1, only_first=True))

    def read(self, path: str) -> bytes:
        return self._wait(self._get, path, None)[0]

    def read_tail(self, path: str, length: int) -> tuple[bytes, int]:
        return self._wait(self._get_tail, path, length)

    def read_tails(self, paths: Sequence[str], length: int) -> Tails:
        return self._wait(_gather, [functools.partial(self._get_tail, path, length) for path in paths])

    def _spans(self, spans: Sequence[ByteRange]) -> Sequence[bytes | Exception]:
        return self._wait(_gather, [functools.partial(self._get_span, span) for span in spans])

    def list(self, folder: str) -> Paths:
        prefix = f"{check_path(folder)}/" if folder else ""
        names: set[str] = set()
        with translated(folder, "list", self._place(prefix)):
            for page in self._pages(prefix, Delimiter="/"):
                keys = [each["Prefix"] for each in page.get("CommonPrefixes", ())]
                keys += [each["Key"] for each in page.get("Contents", ())]
                names.update(key[len(self._prefix + prefix) :].rstrip("/") for key in keys)
        return sorted(name for name in names if name and not name.startswith("."))

    def _list_after(self, folder: str, after: str) -> Paths:
        prefix = f"{folder}/"
        found = []
        start = {"StartAfter": self._prefix + prefix + after} if after else {}
        with translated(folder, "list", self._place(prefix)):
            for page in self._pages(prefix, **start):
                found += [each["Key"][len(self._prefix) :] for each in page.get("Contents", ())]
        names = (path[len(prefix) :] for path in found)
        return [prefix + name for name in sorted(names) if _is_two_level(name)]

    def _pages(self, prefix: str, only_first: bool = False, **parameters: Any) -> Iterator[Mapping[str, Any]]:
        wanted = {"Bucket": self._bucket, "Prefix": self._prefix + prefix, **parameters}
        while True:
            try:
                page = self.fs.call_s3("list_objects_v2", **wanted)
            except FileNotFoundError:  # the bucket itself does not exist
                return
            yield page
            if only_first or not page.get("IsTruncated"):
                return
            wanted["ContinuationToken"] = page["NextContinuationToken"]

    def create(self, path: str, data: bytes | memoryview) -> None:
        # A put whose answer was lost is repeated, and the repetition finds the name taken: by us. The mark tells.
        mark = secrets.token_hex(16)
        parameters = {"Body": bytes(data), "IfNoneMatch": "*", "Metadata": {_MARK: mark}}
        with translated(path, "write", self._place(path)):
            for attempt in range(_ATTEMPTS):
                status = self._put(path, parameters)
                if status is None or (status == 412 and self._mark(path) == mark):
                    return
                if status == 412:
                    raise AlreadyPublished(path, _TAKEN)
                time.sleep(0.05 * 2**attempt)  # 409: another put of the name is under way; who wins is not settled
            raise AlreadyPublished(path, "others publish a file of this name at the same time")

    def _put(self, path: str, parameters: Mapping[str, Any]) -> int | None:
        """Put the object; None if done, the HTTP status if the condition was not met."""
        try:
            self.fs.call_s3("put_object", Bucket=self._bucket, Key=self._prefix + check_path(path), **parameters)
        except Exception as exc:
            status = http_status(exc)
            if status not in (409, 412):
                raise
            return status
        return None

    def _mark(self, path: str) -> str | None:
        try:
            head = self.fs.call_s3("head_object", Bucket=self._bucket, Key=self._prefix + path)
        except FileNotFoundError:
            return None
        mark: str | None = head.get("Metadata", {}).get(_MARK)
        return mark

    def replace(self, path: str, data: bytes | memoryview) -> None:
        with translated(path, "write", self._place(path)):
            self._put(path, {"Body": bytes(data)})

    def remove(self, path: str) -> None:
        with translated(path, "delete", self._place(path)), suppress(FileNotFoundError):
            self.fs.call_s3("delete_object", Bucket=self._bucket, Key=self._prefix + check_path(path))

    def touch(self, path: str) -> None:
        key = self._prefix + check_path(path)
        # One request that both finds the object and writes it again: a copy onto itself, which has to change something.
        renewed = {"MetadataDirective": "REPLACE", "Metadata": {_MARK: secrets.token_hex(16)}}
        with translated(path, "read", self._place(path)):
            source = {"Bucket": self._bucket, "Key": key}
            self.fs.call_s3("copy_object", Bucket=self._bucket, Key=key, CopySource=source, **renewed)

    def written_at(self, path: str) -> tuple[float, float]:
        with translated(path, "read", self._place(path)):
            head = self.fs.call_s3("head_object", Bucket=self._bucket, Key=self._prefix + check_path(path))
        date = head["ResponseMetadata"]["HTTPHeaders"].get("date")
        now = parsedate_to_datetime(date).timestamp() if date else time.time()
        return head["LastModified"].timestamp(), now

    def _wait(self, function: Callable[..., Awaitable[_T]], *args: Any) -> _T:
        """Run a coroutine on fsspec's thread."""
        from fsspec.asyn import sync

        result: _T = sync(self.fs.loop, function, *args)
        return result

    async def _get_tail(self, path: str, length: int) -> tuple[bytes, int]:
        data, size = await self._get(path, f"bytes=-{max(1, length)}")
        self._cache.keep(path, data, size)
        return data[max(0, len(data) - length) :], size

    async def _get_span(self, span: ByteRange) -> bytes:
        return (await self._get(span.path, f"bytes={span.start}-{span.start + span.length - 1}"))[0]

    async def _get(self, path: str, part: str | None) -> tuple[bytes, int]:
        """The bytes of the part, and the size of the whole object, by one request."""
        wanted = {"Bucket": self._bucket, "Key": self._prefix + check_path(path), **({"Range": part} if part else {})}
        with translated(path, "read", self._place(path)):
            try:
                return await self._get_whole_answer(wanted)
            except OSError as exc:
                if http_status(exc) != 416:
                    raise
                return b"", 0  # the object ends before the part begins; of an empty one that is any part

    async def _get_whole_answer(self, wanted: Mapping[str, str]) -> tuple[bytes, int]:
        import asyncio

        from s3fs.core import S3_RETRYABLE_ERRORS

        for attempt in range(_ATTEMPTS):
            response = await self._filesystem._call_s3("get_object", **wanted)  # noqa: SLF001 - s3fs reads no range with its headers
            try:
                async with response["Body"] as body:
                    data = bytes(await body.read())
            except S3_RETRYABLE_ERRORS:  # s3fs repeats a request that fails, but not one whose answer breaks off
                if attempt == _ATTEMPTS - 1:
                    raise
                await asyncio.sleep(0.1 * 2**attempt)
            else:
                return data, int((response.get("ContentRange") or f"/{len(data)}").rpartition("/")[2])
        raise AssertionError("unreachable")


class _BufferSink(Sink):
    """Object stores take a file in one piece, so it is written in memory first."""

    def __init__(self, storage: Storage, path: str) -> None:
        import pyarrow as pa

        self._storage, self._path = storage, path
        self.file = pa.BufferOutputStream()

    def publish(self) -> None:
        self._storage.create(self._path, memoryview(self.file.getvalue()))

    def abort(self) -> None:
        with suppress(Exception):
            self.file.close()


_TAKEN = "a file of this name was published before"
_MARK = "tensortrial-put"
_creating = threading.Lock()
_inherited: list[Any] = []


@call_in_child
def _make_lock_again() -> None:
    global _creating
    _creating = threading.Lock()


def _is_two_level(name: str) -> bool:
    sub, _, file = name.partition("/")
    return bool(sub and file) and "/" not in file and not sub.startswith(".") and not file.startswith(".")


def _bytes_or_raise(path: str, outcome: Any) -> bytes:
    if isinstance(outcome, Exception):
        with translated(path, "read"):
            raise outcome
    return bytes(outcome)


def _outcomes(read: Callable[[str], tuple[bytes, int]], paths: Sequence[str]) -> Tails:
    def outcome(path: str) -> tuple[bytes, int] | Exception:
        try:
            return read(path)
        except Exception as exc:  # noqa: BLE001 - returned, for each path its own
            return exc

    if len(paths) < 2:
        return [outcome(path) for path in paths]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(_PARALLEL, len(paths))) as pool:
        return [*pool.map(outcome, paths)]


async def _gather(calls: Sequence[Callable[[], Awaitable[_T]]]) -> list[_T | Exception]:
    """What each call gives, or the exception it raises, with a bounded number of them under way."""
    import asyncio  # takes 50 ms, which whoever has a local run need not spend

    slots = asyncio.Semaphore(_PARALLEL)

    async def outcome(call: Callable[[], Awaitable[_T]]) -> _T | Exception:
        async with slots:
            try:
                return await call()
            except Exception as exc:  # noqa: BLE001 - returned, for each call its own
                return exc

    return [*await asyncio.gather(*map(outcome, calls))]


def _filesystem_class(protocol: str) -> Any:
    import fsspec

    try:
        return fsspec.get_filesystem_class(protocol)
    except ImportError as exc:
        if protocol == "s3":
            raise MissingExtra("s3fs", "s3", "an s3:// run") from exc
        raise ConfigurationError(f"{protocol}:// runs need a package that is not installed: {exc}") from exc
    except ValueError as exc:
        raise ConfigurationError(f"{protocol}:// is no place for a run: try a path, or s3://") from exc


def s3_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The caller's options, with connections enough where the caller set no number."""
    return {**options, "config_kwargs": {"max_pool_connections": _CONNECTIONS, **(options.get("config_kwargs") or {})}}
