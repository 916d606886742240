"""Storage in a bucket of S3, or of a server with its protocol.

It sends S3's own requests through s3fs, because fsspec's interface lacks what makes following a run cheap: listing from
a key on, reading the end of a file without its size, and putting a file only if none exists.

obstore has these too and is 1.2 to 4 times faster, but cannot replace s3fs here (obstore 0.12.1, on moto and on Ceph's
gateway). Once a process has used it, a forked child hangs at its first request; Ctrl-C does not end a request that the
server does not answer; it hides the Date of a response, which is the storage's clock; and it cannot copy an object onto
itself, which renews a file in one request.
"""

from __future__ import annotations

import functools
import io
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from ..errors import AlreadyPublished, ConfigurationError
from .base import TAKEN, ByteRange, Paths, StoredFile, Tails, check_path
from .foreign_errors import http_status, translated
from .fsspec import PARALLEL, FsspecStorage

_T = TypeVar("_T")

_ATTEMPTS = 4
_CONNECTIONS = 2 * PARALLEL
"""The limit of connections. With botocore's default of 10, the calls of two threads would wait for each other."""
_MARK = "tensortrial-put"
_STREAMED_BYTES = 8 << 20


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
                client = filesystem.connect()  # creates the client, without a request
                client.meta.events.register("before-parameter-build.s3.PutObject", _rewind, unique_id=_MARK)
            except (AttributeError, TypeError, ValueError) as exc:
                raise ConfigurationError(f"s3:// does not take these storage_options: {exc}") from exc
            self._connected = True
        return filesystem

    def _where(self, path: str) -> str:
        return f"bucket {self._bucket!r}, key {self._prefix + path!r}"

    def exists_any(self) -> bool:
        with translated("", "list", self._where("")):
            return any(page.get("Contents") for page in self._pages("", MaxKeys=1, only_first=True))

    def read(self, path: str) -> bytes:
        return self._wait(self._get, path, None)[0]

    def _read_front(self, path: str, length: int) -> bytes:
        return self._wait(self._get, path, f"bytes=0-{length - 1}")[0]

    def read_tail(self, path: str, length: int) -> tuple[bytes, int]:
        return self._wait(self._get_tail, path, length)

    def read_tails(self, paths: Sequence[str], length: int) -> Tails:
        return self._wait(_gather, [functools.partial(self._get_tail, path, length) for path in paths])

    def _spans(self, spans: Sequence[ByteRange]) -> Sequence[bytes | Exception]:
        return self._wait(_gather, [functools.partial(self._get_span, span) for span in spans])

    def list(self, folder: str) -> Paths:
        prefix = f"{check_path(folder)}/" if folder else ""
        names: set[str] = set()
        with translated(folder, "list", self._where(prefix)):
            for page in self._pages(prefix, Delimiter="/"):
                keys = [each["Prefix"] for each in page.get("CommonPrefixes", ())]
                keys += [each["Key"] for each in page.get("Contents", ())]
                names.update(key[len(self._prefix + prefix) :].rstrip("/") for key in keys)
        return sorted(name for name in names if name and not name.startswith("."))

    def walk(self) -> Iterator[StoredFile]:
        with translated("", "list", self._where("")):
            for page in self._pages(""):
                for each in page.get("Contents", ()):
                    yield StoredFile(each["Key"][len(self._prefix) :], int(each["Size"]))

    def _list_after(self, folder: str, after: str) -> Paths:
        prefix = f"{folder}/"
        found = []
        start = {"StartAfter": self._prefix + prefix + after} if after else {}
        with translated(folder, "list", self._where(prefix)):
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
        # If the response of a put is lost, the put is repeated, and finds the name taken. The mark shows by which put.
        mark = secrets.token_hex(16)
        parameters = {"Body": _body(data), "IfNoneMatch": "*", "Metadata": {_MARK: mark}}
        with translated(path, "write", self._where(path)):
            for attempt in range(_ATTEMPTS):
                status = self._put(path, parameters)
                if status is None or (status == 412 and self._mark(path) == mark):
                    return
                if status == 412:
                    raise AlreadyPublished(path, TAKEN)
                time.sleep(0.05 * 2**attempt)  # 409: another put of the name is running, and either may win
            raise AlreadyPublished(path, "other processes publish a file of this name at the same time")

    def _put(self, path: str, parameters: Mapping[str, Any]) -> int | None:
        """Put the object. Return the HTTP status if the condition was not met, else None."""
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
        return head.get("Metadata", {}).get(_MARK)

    def replace(self, path: str, data: bytes | memoryview) -> None:
        with translated(path, "write", self._where(path)):
            self._put(path, {"Body": _body(data)})

    def remove(self, path: str) -> None:
        with translated(path, "delete", self._where(path)), suppress(FileNotFoundError):
            self.fs.call_s3("delete_object", Bucket=self._bucket, Key=self._prefix + check_path(path))

    def touch(self, path: str) -> None:
        key = self._prefix + check_path(path)
        # A copy onto itself, which must change something, finds and writes the object in one request.
        renewed = {"MetadataDirective": "REPLACE", "Metadata": {_MARK: secrets.token_hex(16)}}
        with translated(path, "read", self._where(path)):
            source = {"Bucket": self._bucket, "Key": key}
            self.fs.call_s3("copy_object", Bucket=self._bucket, Key=key, CopySource=source, **renewed)

    def written_at(self, path: str) -> tuple[float, float]:
        with translated(path, "read", self._where(path)):
            head = self.fs.call_s3("head_object", Bucket=self._bucket, Key=self._prefix + check_path(path))
        date = head["ResponseMetadata"]["HTTPHeaders"].get("date")
        now = parsedate_to_datetime(date).timestamp() if date else time.time()
        return head["LastModified"].timestamp(), now

    def _wait(self, function: Callable[..., Awaitable[_T]], *args: Any) -> _T:
        """Run a coroutine on fsspec's thread."""
        from fsspec.asyn import sync

        return sync(self.fs.loop, function, *args)

    async def _get_tail(self, path: str, length: int) -> tuple[bytes, int]:
        data, size = await self._get(path, f"bytes=-{max(1, length)}")
        self._cache.keep(path, data, size)
        return data[max(0, len(data) - length) :], size

    async def _get_span(self, span: ByteRange) -> bytes:
        return (await self._get(span.path, f"bytes={span.start}-{span.start + span.length - 1}"))[0]

    async def _get(self, path: str, part: str | None) -> tuple[bytes, int]:
        """Return the bytes of the part, and the size of the whole object, by one request."""
        wanted = {"Bucket": self._bucket, "Key": self._prefix + check_path(path), **({"Range": part} if part else {})}
        with translated(path, "read", self._where(path)):
            try:
                return await self._get_whole(wanted)
            except OSError as exc:
                if http_status(exc) != 416:
                    raise
                return b"", 0  # the object ends before the part begins, as an empty one always does

    async def _get_whole(self, wanted: Mapping[str, str]) -> tuple[bytes, int]:
        import asyncio

        from s3fs.core import S3_RETRYABLE_ERRORS

        for attempt in range(_ATTEMPTS):
            response = await self._filesystem._call_s3("get_object", **wanted)  # noqa: SLF001 - s3fs cannot read a range together with the headers
            try:
                async with response["Body"] as body:
                    data = bytes(await body.read())
            except S3_RETRYABLE_ERRORS:  # s3fs repeats a failed request, but not one with an incomplete response
                if attempt == _ATTEMPTS - 1:
                    raise
                await asyncio.sleep(0.1 * 2**attempt)
            else:
                return data, int((response.get("ContentRange") or f"/{len(data)}").rpartition("/")[2])
        raise AssertionError("unreachable")


def _body(data: bytes | memoryview) -> bytes | _Stream:
    """Return the body of a put: for a large file a stream, which is sent in pieces without a copy of the whole."""
    return bytes(data) if len(data) < _STREAMED_BYTES else _Stream(data)


class _Stream(io.RawIOBase):
    """A stream of memory. aiohttp would copy a whole BytesIO to find its size."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data, self._position = memoryview(data), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: len(self._data)}[whence]
        self._position = begin + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        piece = self._data[self._position : self._position + len(buffer)]
        buffer[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)


def _rewind(params: Mapping[str, Any], **_: Any) -> None:
    """Rewind a stream, because s3fs repeats a failed request with the same stream, which is then at its end."""
    body = params.get("Body")
    if isinstance(body, io.IOBase):
        body.seek(0)


def s3_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the caller's options, with enough connections unless the caller set their number."""
    return {**options, "config_kwargs": {"max_pool_connections": _CONNECTIONS, **(options.get("config_kwargs") or {})}}


def _is_two_level(name: str) -> bool:
    sub, _, file = name.partition("/")
    return bool(sub and file) and "/" not in file and not sub.startswith(".") and not file.startswith(".")


async def _gather(calls: Sequence[Callable[[], Awaitable[_T]]]) -> list[_T | Exception]:
    """Return the result or the exception of each call, with a bounded number of concurrent calls."""
    import asyncio  # takes 50 ms, which a local run does not need

    slots = asyncio.Semaphore(PARALLEL)

    async def outcome(call: Callable[[], Awaitable[_T]]) -> _T | Exception:
        async with slots:
            try:
                return await call()
            except Exception as exc:  # noqa: BLE001 - returned, one for each call
                return exc

    return [*await asyncio.gather(*map(outcome, calls))]
