"""The end of a process: at exit, after an uncaught exception and on SIGTERM, runs are closed.

A forked child saves nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from functools import partial
from typing import Any, Protocol

from .sigterm import Termination


class Closable(Protocol):
    """An object with a run to close: a recorder."""

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def forget(self) -> None: ...


_known: weakref.WeakSet[Any] = weakref.WeakSet()
_unclosed: weakref.WeakSet[Any] = weakref.WeakSet()
_open: set[Closable] = set()
"""The objects with a run to close. The references are strong: a hook that goes out of scope has a run to close."""


def _each(method: str) -> None:
    """Call a method of each object with a run to close, even if others raise errors."""
    with contextlib.ExitStack() as stack:
        for closable in list(_open):
            stack.callback(getattr(closable, method))


_close = partial(_each, "close")
_termination = Termination(partial(_each, "flush"), _close)
_installed = False


def watch(closable: Closable) -> None:
    """Call `closable.forget()` in each child that is forked from this process, and prepare for `close_at_exit`."""
    global _installed
    _known.add(closable)
    _unclosed.add(closable)
    if not _installed:
        _installed = True
        # Runs after an uncaught exception, too.
        atexit.register(_close)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=_termination.before_fork,
                after_in_parent=_termination.after_fork_in_parent,
                after_in_child=_in_child,
            )
    _termination.handle()


def close_at_exit(closable: Closable) -> None:
    """Call `closable.close()` before the process ends, unless it is killed or `closed` comes first."""
    _open.add(closable)


def closed(closable: Closable) -> None:
    """Note that there is nothing left to close."""
    _open.discard(closable)
    _unclosed.discard(closable)
    if not _unclosed:
        _termination.release()


def ends_by_signal() -> bool:
    """Return whether SIGTERM is ending this process: its training goes on until the runs are closed."""
    return _termination.ending


def _in_child() -> None:
    _termination.after_fork_in_child()
    for closable in list(_known):
        closable.forget()
    _known.clear()
    _unclosed.clear()
    _open.clear()
