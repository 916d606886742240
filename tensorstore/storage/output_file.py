"""A file that a user asked for, such as a report."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path

from ..errors import StorageError

# A mount point cannot be replaced, nor another user's file in a folder such as /tmp.
_NOT_REPLACEABLE = (errno.EBUSY, errno.EPERM, errno.EACCES)


def write_output(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a whole file, or leave the earlier one as it was.

    A pipe, a device and a file that cannot be replaced by a new one, such as a mount point, are written in place.

    Raises:
        StorageError: The file cannot be written.
    """
    target = os.path.realpath(path)
    is_special = os.path.exists(path) and not os.path.isfile(path)
    in_place = is_special or os.path.abspath(path).startswith(("/dev/fd/", "/dev/std", "/proc/"))
    replaced = (each for each in (os.path.dirname(target), target) if os.path.exists(each))
    try:
        if in_place or not all(os.access(each, os.W_OK) for each in replaced) or not _replace(target, data):
            Path(path).write_bytes(data)
    except OSError as exc:
        raise StorageError(os.fspath(path), f"this file cannot be written: {exc.strerror}") from exc


def _replace(target: str, data: bytes) -> bool:
    """Put a new file in the place of `target`. Return False if it must be written in place."""
    temporary = f"{os.path.dirname(target)}/.{os.urandom(8).hex()}.tmp"
    try:
        Path(temporary).write_bytes(data)
        try:
            if os.path.exists(target):
                shutil.copymode(target, temporary)
            os.replace(temporary, target)
        except OSError as exc:
            if exc.errno not in _NOT_REPLACEABLE:
                raise
            return False
        return True
    finally:
        with suppress(OSError):
            os.unlink(temporary)
