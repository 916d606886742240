"""The file system, observed: an action at the moment when a file is opened or changed, and the reads of files.

Another process may act, a disk fail or this process die at any moment of an operation. Tests choose the moment by the
file that is used then. An error that the action raises is one of the call of the system.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Collection, Iterator
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
    with before(_OPENED, path, action):
        yield


@contextmanager
def before(uses: Collection[str], path: Path, action: Callable[[], Any]) -> Iterator[None]:
    """Call `action` once, before this process uses the file or folder `path`, or one below it, in one of some ways.

    Args:
        uses: Some of "read" and "create", which open a file, "list", "publish" (under a new name) and "remove".
        path: The file or folder.
        action: The function to call.

    Yields:
        Nothing. The block fails if nothing was used so.
    """
    _audit()
    pending = uses, path, action
    _pending.append(pending)
    try:
        yield
        assert pending not in _pending, f"no file of {path} was used in a way of {uses}"
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


_OPENED = ("read", "create")
# The use of a file that an event of the interpreter shows, and which of its arguments is the path.
_USES = {
    "os.listdir": ("list", 0),
    "os.scandir": ("list", 0),
    "os.link": ("publish", 1),
    "os.rename": ("publish", 1),
    "os.remove": ("remove", 0),
}
_pending: list[tuple[Collection[str], Path, Callable[[], Any]]] = []
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
    if not _pending or (event != "open" and event not in _USES):
        return
    use, position = _USES.get(event, ("create" if event == "open" and arguments[2] & os.O_CREAT else "read", 0))
    if isinstance(arguments[position], str | os.PathLike):
        path = Path(arguments[position])
        if use != "read" or path.is_file():  # a folder is opened, too, before it is listed
            for pending in [each for each in _pending if use in each[0] and path.is_relative_to(each[1])]:
                _pending.remove(pending)
                pending[2]()


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
