"""The opening of storages: on a disk, in S3, in memory, or on another filesystem of fsspec.

The other packages import from here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import ConfigurationError
from .base import ByteRange, FileSource, Sink, Storage, StoredFile
from .flush_registry import add_flush
from .foreign_errors import translated
from .local import LocalStorage

__all__ = [
    "ByteRange",
    "FileSource",
    "Sink",
    "Storage",
    "StoredFile",
    "canonical_url",
    "open_storage",
    "register_flush",
    "translated",
]

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://(.*)", re.DOTALL)
_SHORTENED_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):/")
_SAME = {"s3a": "s3", "local": "file"}


def open_storage(
    url: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    *,
    follow_links: bool = False,
    durable: bool = False,
) -> Storage:
    """Return the storage at a path or URL. It need not exist, and is not created.

    Args:
        url: A path, or a URL such as s3://bucket/folder.
        storage_options: Passed to fsspec unchanged; for S3 for example endpoint_url, key and secret.
        follow_links: Follow symbolic links below a local folder. They are refused in a run; this is for folders of
            other programs.
        durable: On a disk, published and deleted files survive a loss of power once the call returns. Object stores
            have their own guarantees.

    Raises:
        ConfigurationError: The URL or the options cannot be used.
    """
    protocol, rest = _parts(url)
    if not isinstance(storage_options, Mapping | None):
        raise ConfigurationError(f"storage_options must be a mapping, got {type(storage_options).__name__}")
    options = dict(storage_options or {})
    if protocol == "file":
        return LocalStorage(_folder(rest), follow_links, durable)
    from .fsspec import FsspecStorage  # a local run needs neither of these modules

    kind = FsspecStorage
    if protocol == "s3":
        from .s3 import S3Storage, s3_options

        kind = S3Storage
        if "@" in rest.partition("/")[0]:
            raise ConfigurationError(
                "an s3:// URL must not contain credentials: pass key and secret as storage_options"
            )
    try:
        options = s3_options(options) if protocol == "s3" else options
        return kind(canonical_url(url), protocol, f"{protocol}://{rest}", options)
    except TypeError as exc:
        raise ConfigurationError(f"{protocol}:// does not take these storage_options: {exc}") from exc


def canonical_url(url: str | os.PathLike[str]) -> str:
    """Return a run's canonical location: an absolute local path, or a URL without trailing slash and credentials."""
    protocol, rest = _parts(url)
    if protocol == "file":
        return _folder(rest)
    host, slash, path = rest.partition("/")
    # 'user:password@host' is possible in URLs such as sftp's; no bucket has an @ in its name.
    path = path.partition("?")[0] if protocol in ("http", "https") else path
    return f"{protocol}://{host.rpartition('@')[2]}{slash}{path}"


def register_flush(
    url: str | os.PathLike[str], callback: Callable[[], None], written_by: Callable[[], int] = lambda: 0
) -> Callable[[], None]:
    """Call `callback` before each `list_after` of this run in this process. Return a function that ends this.

    So a reader in the writing process sees every closed step immediately. A running listing may call the callback once
    more after the registration has ended. `written_by` returns the identifier of the thread that writes the steps,
    which cannot wait for them.
    """
    protocol, rest = _parts(url)
    key = os.path.realpath(_folder(rest)) if protocol == "file" else canonical_url(url)
    return add_flush(key, callback, written_by)


def as_location(url: str | os.PathLike[str]) -> str:
    """Return the location of a run as text.

    Raises:
        ConfigurationError: It is neither a path nor a URL.
    """
    text = os.fspath(url) if isinstance(url, str | os.PathLike) else ""
    if not isinstance(text, str) or not text or "\0" in text:
        raise ConfigurationError(f"a run's location must be a path or a URL, got {url!r}")
    return text


def _parts(url: str | os.PathLike[str]) -> tuple[str, str]:
    text = as_location(url)
    found = _URL.fullmatch(text)
    if not found:
        if "::" in text and "://" in text:
            raise ConfigurationError("a run cannot be in a chain of URLs (with '::'); pass the last one alone")
        if short := _SHORTENED_URL.match(text):
            rest = text[short.end() - (short[1].lower() == "file") :]
            raise ConfigurationError(
                f"{text!r} is a URL that pathlib.Path has shortened: pass the text {short[1]}://{rest}, or ./{text} "
                "for a folder of that name"
            )
        return "file", text
    protocol = found[1].lower()
    protocol = _SAME.get(protocol, protocol)
    if protocol == "file":
        return protocol, found[2] or "/"
    if not (rest := found[2].strip("/")):
        raise ConfigurationError(f"{text!r} names no bucket or folder for the run")
    return protocol, rest


def _folder(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))
