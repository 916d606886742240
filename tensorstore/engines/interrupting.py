"""Calls into an engine that stop after a timeout or at Ctrl-C."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Generic, TypeVar

from ..errors import ConfigurationError
from ..interrupts import Event

_T = TypeVar("_T")
_INTERVAL_SECONDS = 0.02
# Libraries such as polars install a handler of SIGINT that does not end a wait. Python runs it between two waits.
_WAIT_SECONDS = 0.1
# DuckDB's message after Ctrl-C, and its texts for a KeyboardInterrupt in a call of Python: to read a file, or the
# schema of a table.
_CTRL_C = re.compile(r"\AQuery interrupted\Z|(\A|\n|: )KeyboardInterrupt(: *(<EMPTY MESSAGE>)?)?(\n|\Z)")


def deadline_of(timeout: float) -> float:
    """Return the end of a wait of so many seconds, 0 or more, by the monotonic clock. Raises ConfigurationError."""
    with suppress(TypeError, ValueError, OverflowError):
        if (seconds := float(timeout)) >= 0:
            return time.monotonic() + seconds
    raise ConfigurationError(f"timeout must be a number of seconds, 0 or more, or None, got {timeout!r}")


class DeadlinePassed(Exception):
    """A call that was stopped because it took longer than its timeout."""


def interruptible(call: Callable[[], _T], interrupt: Callable[[], Any], timeout: float | None = None) -> _T:
    """Return the result of `call`, or stop it by `interrupt` after `timeout` seconds or at Ctrl-C.

    Python handles signals in the main thread only, and not while that thread is inside an engine. So the main thread
    waits here, while another one makes the call. Other threads get no Ctrl-C, and without a timeout they make the call
    themselves.

    Args:
        call: Runs a query and takes its rows.
        interrupt: Makes `call` raise soon. Called repeatedly until it has ended, because an engine forgets an
            interrupt that comes before its query has begun.
        timeout: Seconds; None for no limit.

    Raises:
        DeadlinePassed: `call` was stopped after `timeout` seconds.
        KeyboardInterrupt: `call` was stopped by Ctrl-C.
    """
    if timeout is None and threading.current_thread() is not threading.main_thread():
        return call()
    running = _Running(call)
    # A daemon: an engine that does not react to an interrupt must not keep the program from ending.
    thread = threading.Thread(target=running.run, name="tensortrial query", daemon=True)
    try:
        try:
            thread.start()
        except RuntimeError:
            return call()  # no thread can be started, so the call cannot be stopped
        running.wait(timeout)
    except BaseException:
        running.stop(interrupt)
        raise
    return running.result()


class _Running(Generic[_T]):
    """A call that is made in another thread."""

    def __init__(self, call: Callable[[], _T]) -> None:
        self._call = call
        self._results, self._errors = list[_T](), list[BaseException]()
        self._begins, self._ended = threading.Lock(), Event()

    def run(self) -> None:
        if self._begins.acquire(blocking=False):
            try:
                self._results.append(self._call())
            except BaseException as exc:  # noqa: BLE001 - raised again in the waiting thread
                self._errors.append(exc)
            self._ended.set()

    def wait(self, timeout: float | None) -> None:
        deadline = math.inf if timeout is None else deadline_of(timeout)
        while not self._ended.wait(min(_WAIT_SECONDS, deadline - time.monotonic())):
            if time.monotonic() >= deadline:
                raise DeadlinePassed

    def stop(self, interrupt: Callable[[], Any]) -> None:
        # After a Ctrl-C that comes before the thread has begun, no call is made.
        if not self._begins.acquire(blocking=False):
            while not self._ended.wait(_INTERVAL_SECONDS):
                interrupt()

    def result(self) -> _T:
        if self._errors:
            raise self._errors.pop()  # an error that is kept here would keep this frame, and that the error
        return self._results[0]


@contextmanager
def keyboard_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt for the error by which DuckDB replaces it, for calls in this thread."""
    try:
        yield
    except Exception as exc:
        if _CTRL_C.search(str(exc)):
            raise KeyboardInterrupt from exc
        raise
