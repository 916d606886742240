"""The end of a process: at exit, after an uncaught exception and on SIGTERM, runs are closed.

A forked child saves nothing.

On SIGTERM, what was recorded is published, and then the process ends as it would have ended without a hook. Python runs
a handler between two instructions of the main thread, which may be inside C code for hours: a collective that never
completes, a long kernel. So a thread reads the numbers of signals from a pipe, into which they are written as they
arrive (`signal.set_wakeup_fd`). There is also a handler, because a signal without one ends the process at once, and for
the case that other code, such as asyncio, has the wakeup descriptor.

A handler of the user's own is left as it is, and decides alone how the process ends; what was recorded is published
meanwhile.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import ctypes
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, Protocol

GRACE_SECONDS = 20.0
"""The most seconds that publishing and closing may take. Schedulers send SIGKILL 30 seconds after SIGTERM."""

_DEFAULT_ACTION = 0  # SIG_DFL, in C
_INIT = 1  # the first process of a container: without a handler, the kernel keeps SIGTERM from it


class _Wakeup:
    """The pipe into which the numbers of signals are written, and the thread that reads it."""

    def __init__(self, arrived: Callable[[], None]) -> None:
        self._arrived = arrived
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def start(self) -> bool:
        """Begin to write signals to the pipe. Return False if they are written elsewhere already."""
        others = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        if others != -1:
            signal.set_wakeup_fd(others)
            self._close()
            return False
        threading.Thread(target=self._read, name="tensortrial-signals", daemon=True).start()
        return True

    def stop(self) -> None:
        """End the thread, and write signals to the pipe no more. A descriptor that other code has set since stays."""
        self._unset()
        os.close(self._writer)

    def forget(self) -> None:
        """Close both ends in a forked child, which has no thread and whose signals are its own."""
        self._unset()
        self._close()

    def _unset(self) -> None:
        current = signal.set_wakeup_fd(-1)
        if current not in (-1, self._writer):
            signal.set_wakeup_fd(current)

    def _close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)

    def _read(self) -> None:
        while numbers := os.read(self._reader, 64):
            if signal.SIGTERM in numbers:
                self._arrived()
        os.close(self._reader)


class Termination:
    """Ends the process on SIGTERM, after `flush` has published what was recorded and `close` has closed the runs.

    Both together may take GRACE_SECONDS. A second SIGTERM meanwhile changes nothing. C code that keeps Python's global
    lock delays the end until it returns.
    """

    def __init__(self, flush: Callable[[], None], close: Callable[[], None]) -> None:
        self._publish, self._close_runs = flush, close
        self._wakeup: _Wakeup | None = None
        self._ending = threading.Lock()
        self._blocked = threading.local()

    def handle(self) -> None:
        """Handle SIGTERM from here on. Python allows it in the main thread only; elsewhere nothing changes."""
        if threading.current_thread() is not threading.main_thread():
            return
        # None: a handler in C, which Python cannot put back.
        current = signal.getsignal(signal.SIGTERM)
        if current is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_signal)
        if current not in (None, signal.SIG_IGN) and self._wakeup is None:
            with contextlib.suppress(OSError):  # no descriptor is free: only code in C then delays the end
                wakeup = _Wakeup(self._arrived)
                self._wakeup = wakeup if wakeup.start() else None

    def release(self) -> None:
        """Restore the handler and the descriptor of before, in the main thread; elsewhere nothing changes."""
        if threading.current_thread() is not threading.main_thread() or self.ending:
            return
        self._withdraw(_Wakeup.stop)

    def _withdraw(self, end: Callable[[_Wakeup], None]) -> None:
        if self._is_ours():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        wakeup, self._wakeup = self._wakeup, None
        if wakeup is not None:
            end(wakeup)

    # A fork. Python clears the signals that are pending in the child, and one that arrives in its first moments is
    # lost, unless it waits in the kernel until the child has the default action again.

    def before_fork(self) -> None:
        if self._is_ours() or self._wakeup is not None:
            self._blocked.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def after_fork_in_parent(self) -> None:
        mask = self._blocked.__dict__.pop("mask", None)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def after_fork_in_child(self) -> None:
        self._withdraw(_Wakeup.forget)
        self._ending = threading.Lock()
        self.after_fork_in_parent()

    # A signal.

    @property
    def ending(self) -> bool:
        """True once SIGTERM ends the process."""
        return self._ending.locked()

    def _is_ours(self) -> bool:
        return signal.getsignal(signal.SIGTERM) == self._on_signal

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # Publishing takes locks, and this thread may have been interrupted while it held them: it goes on meanwhile.
        self._begin_to_end()

    def _arrived(self) -> None:
        if self._is_ours():
            self._begin_to_end()
        else:
            _thread.start_new_thread(self._flush, ())

    def _begin_to_end(self) -> None:
        if os.getpid() == _INIT:
            _thread.start_new_thread(self._flush, ())
        elif self._ending.acquire(blocking=False):
            _thread.start_new_thread(self._end, ())

    def _end(self) -> None:
        try:
            done = threading.Event()
            _thread.start_new_thread(self._close, (done,))
            done.wait(GRACE_SECONDS)
        finally:
            # By the signal: the parent of the process sees the status that it would have seen without a hook. Not
            # `signal.signal`, which works in the main thread only.
            ctypes.CDLL(None).signal(signal.SIGTERM, ctypes.c_void_p(_DEFAULT_ACTION))
            os.kill(os.getpid(), signal.SIGTERM)

    def _close(self, done: threading.Event) -> None:
        try:
            # Needs no lock that the training's thread may hold where it is stuck.
            self._flush()
            self._close_runs()
        finally:
            done.set()

    def _flush(self) -> None:
        # An error here occurs again when the run is closed, and is logged then.
        with contextlib.suppress(Exception):
            self._publish()


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


def wait_for_end() -> None:
    """Wait for the end of the process, if SIGTERM is ending it."""
    if _termination.ending:
        time.sleep(GRACE_SECONDS)


def watch(closable: Closable) -> None:
    """Call `closable.forget()` in each child that is forked from this process, and prepare for `close_at_exit`."""
    global _installed
    _known.add(closable)
    _unclosed.add(closable)
    if not _installed:
        _installed = True
        # Runs after an uncaught exception, too.
        atexit.register(wait_for_end)
        atexit.register(_close)  # the last one is called first
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
