"""Calls into an engine that this process can stop: after a time, or at Ctrl-C."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")
_INTERVAL_SECONDS = 0.02
# A library such as polars can handle SIGINT so that it does not end a wait: Python notices it between two waits.
_WAIT_SECONDS = 0.1


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
    running = _Call(call)
    try:
        running.wait(timeout)
    except BaseException:
        running.stop(interrupt)
        raise
    return running.result()


class _Call(Generic[_T]):
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], _T]) -> None:
        self._call = call
        self._result: list[_T] = []
        self._error: BaseException | None = None
        self.ended = threading.Event()
        # A daemon: an engine that does not react to an interrupt must not keep the program from ending.
        threading.Thread(target=self._run, name="tensortrial query", daemon=True).start()

    def _run(self) -> None:
        try:
            self._result.append(self._call())
        except BaseException as exc:  # noqa: BLE001 - raised in the thread that waits
            self._error = exc
        finally:
            self.ended.set()

    def wait(self, timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        left = _WAIT_SECONDS if timeout is None else min(_WAIT_SECONDS, timeout)
        while not self.ended.wait(left):
            if deadline is not None:
                left = min(_WAIT_SECONDS, deadline - time.monotonic())
                if left <= 0:
                    raise DeadlinePassed

    def stop(self, interrupt: Callable[[], Any]) -> None:
        while not self.ended.wait(_INTERVAL_SECONDS):
            interrupt()

    def result(self) -> _T:
        if self._error is not None:
            raise self._error
        return self._result[0]
