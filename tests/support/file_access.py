"""The file system, observed: an action at the moment when a file is opened, and the reads of files.

Another process may act at any moment of an operation. Tests choose the moment by the file that is opened then.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def before_opening(path: Path, action: Callable[[], Any]) -> Iterator[None]:
    """Call `action` once, before this process creates or reads the file `path` or a file below it.

    Yields:
        Nothing. The block fails if no such file was opened.
    """
    _audit()
    pending = path, action
    _pending.append(pending)
    try:
        yield
        assert pending not in _pending, f"no file of {path} was opened"
    finally:
        if pending in _pending:
            _pending.remove(pending)


@contextmanager
def opened_by_this_thread() -> Iterator[list[Any]]:
    """Note each file that the calling thread opens, and each folder that it lists.

    Yields:
        Their paths.
    """
    _audit()
    found = _opened[threading.get_ident()] = list[Any]()
    try:
        yield found
    finally:
        del _opened[threading.get_ident()]


_pending: list[tuple[Path, Callable[[], Any]]] = []
_opened: dict[int, list[Any]] = {}
_is_audited: list[bool] = []


def _audit() -> None:
    if not _is_audited:
        sys.addaudithook(_see)
        _is_audited.append(True)


def _see(event: str, arguments: tuple[Any, ...]) -> None:
    """Receive an event of the interpreter. There is no way to remove such a function."""
    if _opened and event in ("open", "os.listdir", "os.scandir") and threading.get_ident() in _opened:
        _opened[threading.get_ident()].append(arguments[0])
    if event == "open" and _pending and isinstance(arguments[0], str | os.PathLike):
        path = Path(arguments[0])
        if arguments[2] & os.O_CREAT or path.is_file():  # a folder is opened, too, before it is listed
            for pending in [each for each in _pending if path.is_relative_to(each[0])]:
                _pending.remove(pending)
                pending[1]()


@contextmanager
def reads_below(folder: Path) -> Iterator[list[tuple[str, int, int]]]:
    """Note each read at a position of a file below `folder`, unless it only asks what is in the page cache.

    Yields:
        The path, the first byte and the number of bytes of each read, in their order.
    """
    found = list[tuple[str, int, int]]()
    pread, preadv = os.pread, os.preadv

    def note(number: int, start: int, length: int) -> None:
        path = os.readlink(f"/proc/self/fd/{number}")
        if Path(path).is_relative_to(folder):
            found.append((path, start, length))

    def read(number: int, length: int, start: int) -> bytes:
        note(number, start, length)
        return pread(number, length, start)

    def read_into(number: int, buffers: Any, start: int, *flags: int) -> int:
        if os.RWF_NOWAIT not in flags:
            note(number, start, sum(len(each) for each in buffers))
        return preadv(number, buffers, start, *flags)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pread", read)
        patch.setattr(os, "preadv", read_into)
        yield found
