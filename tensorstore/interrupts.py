"""An event and a condition that Ctrl-C leaves usable, and a delay of Ctrl-C.

A Ctrl-C may come between any two instructions of Python. Inside a method of `threading.Event`, it leaves a lock locked,
for which every thread then waits forever. So these wait by the calls of one lock, which are in C.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class Event:
    """A `threading.Event` that is never cleared."""

    def __init__(self) -> None:
        self._is_set, self._unset = False, threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        """Set the event, and wake the threads that wait for it."""
        self._is_set = True
        with suppress(RuntimeError):  # it was released before
            self._unset.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event is set, or `timeout` seconds have passed. Return True if it is set."""
        if not self._is_set and self._unset.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            self.set()  # for the next thread that waits
        return self._is_set


class Condition(threading.Condition):
    """A condition whose `wait` always ends with the lock acquired, also if Ctrl-C came when it had just released it."""

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock, wait until notified or until `timeout` seconds have passed, and acquire the lock."""
        try:
            return super().wait(timeout)
        except BaseException:
            if not self._is_owned():  # type: ignore[attr-defined]
                self.acquire()
            raise


@contextmanager
def delayed_ctrl_c() -> Iterator[None]:
    """Let a Ctrl-C that comes inside the block take effect at its end. A second one takes effect at once."""
    # Python handles signals in the main thread only.
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT) if is_main else None
    if not callable(handler):  # ignored, or handled in C
        yield
        return
    came = list[Any]()

    def delay(*arguments: Any) -> None:
        came.append(arguments)
        if len(came) > 1:
            handler(*arguments)

    try:
        signal.signal(signal.SIGINT, delay)
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)
