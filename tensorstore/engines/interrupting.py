"""Calls into an engine that this process can stop: after a time, or at Ctrl-C."""

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
# A library such as polars can handle SIGINT so that it does not end a wait: Python notices it between two waits.
_WAIT_SECONDS = 0.1
# DuckDB's message after Ctrl-C, and the texts that it makes of a KeyboardInterrupt where it calls Python: to read a
# file, or to see the schema of a table.
_CTRL_C = re.compile(r"\AQuery interrupted\Z|(\A|\n|: )KeyboardInterrupt(: *(<EMPTY MESSAGE>)?)?(\n|\Z)")


class DeadlinePassed(Exception):
    """A call took longer than its timeout, and was stopped."""


def interruptible(call: Callable[[], _T], interrupt: Callable[[], Any], timeout: float | None = None) -> _T:
    """Return what `call` returns, or stop it by `interrupt`: after `timeout` seconds, or at Ctrl-C.

    Python handles a signal in the main thread only, and not while that thread is inside of an engine. So the main
    thread waits here, and another one makes the call. No other thread gets Ctrl-C: without a timeout, it makes the call
    itself.

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
            return call()  # no thread can be started, so nothing can stop the call
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
    except BaseException as exc:  # noqa: BLE001 - raised in the thread that waits
        running.set_exception(exc)


def _wait(running: Future[_T], timeout: float | None) -> None:
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    while not _ends_within(running, min(_WAIT_SECONDS, deadline - time.monotonic())):
        if time.monotonic() >= deadline:
            raise DeadlinePassed


def _stop(running: Future[_T], interrupt: Callable[[], Any]) -> None:
    # Ctrl-C can come before the thread has begun, and then it makes no call.
    if running.cancel():
        return
    while not _ends_within(running, _INTERVAL_SECONDS):
        interrupt()


def _ends_within(running: Future[_T], seconds: float) -> bool:
    wait([running], max(0.0, seconds))
    return running.done()


@contextmanager
def keyboard_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt for the error that DuckDB raises in its place, in a call that is made in this thread."""
    try:
        yield
    except Exception as exc:
        if _CTRL_C.search(str(exc)):
            raise KeyboardInterrupt from exc
        raise
