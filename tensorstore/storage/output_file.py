"""A file that a user asked for, such as a report."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from ..errors import StorageError


def write_output(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a whole file, or leave the earlier one as it was.

    A pipe, a device and a file in a folder where no file can be created are written in place.

    Raises:
        StorageError: The file cannot be written.
    """
    target = os.path.realpath(path)
    is_special = os.path.exists(path) and not os.path.isfile(path)
    in_place = is_special or os.path.abspath(path).startswith(("/dev/", "/proc/"))
    temporary = f"{target}.{os.getpid()}.new"
    try:
        if in_place or not os.access(os.path.dirname(target), os.W_OK):
            Path(path).write_bytes(data)
            return
        try:
            Path(temporary).write_bytes(data)
            if os.path.exists(target):
                shutil.copymode(target, temporary)
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as exc:
        raise StorageError(os.fspath(path), f"this file cannot be written: {exc.strerror}") from exc
