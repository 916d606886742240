"""Calls into an engine that stop after a timeout or at Ctrl-C."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any, TypeVar

_T = TypeVar("_T")
_INTERVAL_SECONDS = 0.02
# Libraries such as polars install a handler of SIGINT that does not end a wait. Python runs it between two waits.
_WAIT_SECONDS = 0.1
# DuckDB's message after Ctrl-C, and its texts for a KeyboardInterrupt in a call of Python: to read a file, or the
# schema of a table.
_CTRL_C = re.compile(r"\AQuery interrupted\Z|(\A|\n|: )KeyboardInterrupt(: *(<EMPTY MESSAGE>)?)?(\n|\Z)")


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
    running: Future[_T] = Future()
    # A daemon: an engine that does not react to an interrupt must not keep the program from ending.
    thread = threading.Thread(target=_run, args=(running, call), name="tensortrial query", daemon=True)
    try:
        try:
            thread.start()
        except RuntimeError:
            return call()  # no thread can be started, so the call cannot be stopped
        _wait(running, timeout)
    except BaseException:
        _stop(running, interrupt)
        raise
    return running.result()


def _run(running: Future[_T], call: Callable[[], _T]) -> None:
    if not running.set_running_or_notify_cancel():
        return
    try:
        running.set_result(call())
    except BaseException as exc:  # noqa: BLE001 - raised again in the waiting thread
        running.set_exception(exc)


def _wait(running: Future[_T], timeout: float | None) -> None:
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    while not _ends_within(running, min(_WAIT_SECONDS, deadline - time.monotonic())):
        if time.monotonic() >= deadline:
            raise DeadlinePassed


def _stop(running: Future[_T], interrupt: Callable[[], Any]) -> None:
    # After a Ctrl-C that comes before the thread has begun, no call is made.
    if running.cancel():
        return
    while not _ends_within(running, _INTERVAL_SECONDS):
        interrupt()


def _ends_within(running: Future[_T], seconds: float) -> bool:
    wait([running], max(0.0, seconds))
    return running.done()


@contextmanager
def keyboard_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt for the error by which DuckDB replaces it, for calls in this thread."""
    try:
        yield
    except Exception as exc:
        if _CTRL_C.search(str(exc)):
            raise KeyboardInterrupt from exc
        raise
