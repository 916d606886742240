"""What must happen before a process ends: at exit, after an uncaught exception, and on SIGTERM."""

from __future__ import annotations

import atexit
import os
import signal
import threading
import weakref
from types import FrameType
from typing import Any, Protocol


class Closable(Protocol):
    def close(self) -> None: ...

    def forget(self) -> None: ...


_open: weakref.WeakSet[Any] = weakref.WeakSet()
_installed = False


def close_at_exit(closable: Closable) -> None:
    """Have `closable.close()` called before the process ends, unless it is killed; and `closable.forget()` called in each
    child that is forked from it."""
    global _installed
    _open.add(closable)
    if not _installed:
        _installed = True
        # Runs after an uncaught exception, too.
        atexit.register(_close_all)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_forget_all)
    _handle_sigterm()


def _handle_sigterm() -> None:
    # Only where nobody else handles it: a handler of the user's ends the process as it likes, and atexit follows.
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_sigterm)


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    try:
        _close_all()
    finally:
        # Die of the signal, so that the parent sees what it would have seen without a hook.
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _close_all() -> None:
    for closable in list(_open):
        closable.close()


def _forget_all() -> None:
    for closable in list(_open):
        closable.forget()
    _open.clear()
