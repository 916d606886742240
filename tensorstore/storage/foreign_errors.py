"""The translation of errors of file systems, fsspec and S3 clients into this project's own."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from typing import Any, Literal

from ..errors import ConfigurationError, CorruptFile, StorageError, TensorTrialError
from ..nested import flat
from ..redaction import without_credentials

Action = Literal["read", "write", "list", "delete"]
_UNEXPECTED = re.compile(r"unexpected keyword argument '([^']*)'")


class translated:  # noqa: N801  # a class, because a generator takes a microsecond, at each call of a storage
    """Raise this project's errors for those of file systems and their libraries.

    Args:
        path: The file, relative to the run.
        action: The operation on the file.
        where: The location in words, such as "bucket 'b', key 'k'".
        options: The options of the file system. No message has their values, which may be credentials.

    Raises:
        FileNotFoundError: The file to be read is missing. Its `filename` is `path`.
        CorruptFile: A folder is in place of the file to be read.
        ConfigurationError: The file system passes its options on, and a function that receives them lacks one.
        StorageError: Every other refusal.
    """

    __slots__ = ("_action", "_options", "_path", "_where")

    def __init__(self, path: str, action: Action, where: str = "", options: Mapping[str, Any] | None = None) -> None:
        self._path, self._action, self._where, self._options = path, action, where, options

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, exc: BaseException | None, traceback: object) -> None:
        if isinstance(exc, TypeError) and _is_of_an_option(exc, self._options or {}):  # http:// has those of requests
            raise ConfigurationError(f"the file system does not take these storage_options: {exc}") from exc
        if not isinstance(exc, Exception) or isinstance(exc, TensorTrialError) or not _is_foreign(exc):
            return
        # Without a cause, whose text may contain a URL with a signature.
        cause = exc if without_credentials(str(exc)) == str(exc) else None
        raise _translation(exc, self._path, self._action, self._where) from cause


def http_status(exc: BaseException | None) -> int | None:
    """Return the HTTP status behind an exception of s3fs or botocore, if there is one."""
    while exc is not None:
        response = getattr(exc, "response", None)
        if isinstance(response, dict):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return int(status) if status else None
        exc = exc.__cause__
    return None


def missing(path: str) -> FileNotFoundError:
    """Return the error of a missing file."""
    return FileNotFoundError(errno.ENOENT, "no such file in the run", path)


def _is_of_an_option(exc: TypeError, options: Mapping[str, Any]) -> bool:
    found = _UNEXPECTED.search(str(exc))
    return found is not None and any(found[1] in key.split(".") for key in flat(options))


def _is_foreign(exc: Exception) -> bool:
    # A library's own exception is recognized by name, because no library is imported for a local run.
    library = type(exc).__module__.partition(".")[0]
    return isinstance(exc, (OSError, EOFError)) or library not in ("builtins", "tensortrial")


def _translation(exc: Exception, path: str, action: Action, where: str) -> Exception:
    absent = isinstance(exc, (FileNotFoundError, NotADirectoryError, IsADirectoryError))
    if isinstance(exc, IsADirectoryError) and action == "read" and not where:
        return CorruptFile(path, "it is a folder, and not a file")
    if absent and action == "read":
        return missing(path)
    error = StorageError(path, _sentence(exc, action, where))
    # .path has the file's relative path, and .errno distinguishes a full disk from other errors.
    error.errno = getattr(exc, "errno", None)
    return error


def _sentence(exc: Exception, action: Action, where: str) -> str:
    location = f" ({named})" if (named := where or _named(exc, action)) else ""
    number, kind = getattr(exc, "errno", None), type(exc).__name__
    holder = "the bucket" if where else "the file system"
    if number == errno.ENOSPC:
        return "the disk has no free inode for another file" if _lacks_inodes(exc) else "the disk is full"
    if number == errno.EDQUOT:
        return "the disk quota is used up"
    if isinstance(exc, PermissionError) or http_status(exc) == 403:
        return f"{holder} refuses the {action}{location}: {_reason(exc)}"
    if kind in ("NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError"):
        return f"found no usable credentials for the object store{location}; pass key and secret as storage_options"
    if kind in ("EndpointConnectionError", "ConnectTimeoutError"):
        return f"the object store cannot be reached{location}; is endpoint_url right?"
    if kind in ("ClientConnectorError", "ClientConnectorDNSError"):
        return f"the server cannot be reached{location}; is its address right?"
    if isinstance(exc, FileNotFoundError) and where:
        return f"cannot {action}, the bucket does not exist{location}"
    return f"cannot {action}{location}: {_reason(exc)}"


def _lacks_inodes(exc: Exception) -> bool:
    """Return whether the file system of a file that cannot be created can hold no more files."""
    try:
        found = os.statvfs(os.path.dirname(getattr(exc, "filename", None) or ""))
    except OSError:
        return False
    return found.f_files > 0 and not found.f_favail


def _named(exc: Exception, action: Action) -> str:
    """Return the file that the error names; for a write its folder, because the file then has a temporary name."""
    name = getattr(exc, "filename", None)
    if not isinstance(name, str):
        return ""
    return os.path.dirname(name) if action == "write" else name


def _reason(exc: Exception) -> str:
    """Return the error in a few words. Its own text is used only if it cannot contain a URL with a signature."""
    if http_status(exc) is not None:
        cause: BaseException | None = exc
        while cause is not None and not hasattr(cause, "response"):
            cause = cause.__cause__
        details = getattr(cause, "response", {}).get("Error", {})
        return f"{details.get('Code', 'error')}, HTTP {http_status(exc)}"
    if isinstance(exc, OSError) and exc.errno and exc.strerror:
        return f"{exc.strerror}"
    return type(exc).__name__
