"""What must happen before a process ends: at exit, after an uncaught exception, and on SIGTERM; and what after a
fork."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import signal
import threading
import weakref
from types import FrameType
from typing import Any, Protocol


class Closable(Protocol):
    def close(self) -> None: ...

    def forget(self) -> None: ...


_known: weakref.WeakSet[Any] = weakref.WeakSet()
# Strongly held: a hook that goes out of scope has a run to close all the same.
_open: set[Any] = set()
_installed = False


def watch(closable: Closable) -> None:
    """Have `closable.forget()` called in each child that is forked from this process; and be ready for
    `close_at_exit`."""
    global _installed
    _known.add(closable)
    if not _installed:
        _installed = True
        # Runs after an uncaught exception, too.
        atexit.register(_close_all)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_forget_all)
    _handle_sigterm()


def close_at_exit(closable: Closable) -> None:
    """Have `closable.close()` called before the process ends, unless it is killed or `closed` comes first."""
    _open.add(closable)


def closed(closable: Closable) -> None:
    """There is nothing left to close."""
    _open.discard(closable)


def _handle_sigterm() -> None:
    # Only where nobody else handles it: a handler of the user's ends the process as it likes, and atexit follows.
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_sigterm)


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    # A second one ends the process at once.
    signal.signal(number, signal.SIG_DFL)
    # Closing takes locks, and this thread may have been interrupted while it held them: it goes on meanwhile.
    _thread.start_new_thread(_close_and_die, (number,))


def _close_and_die(number: int) -> None:
    try:
        _close_all()
    finally:
        # Die of the signal, so that the parent sees what it would have seen without a hook.
        os.kill(os.getpid(), number)


def _close_all() -> None:
    # Each is closed, whatever the others raise.
    with contextlib.ExitStack() as stack:
        for closable in list(_open):
            stack.callback(closable.close)


def _forget_all() -> None:
    for closable in list(_known):
        closable.forget()
    _known.clear()
    _open.clear()
