"""Work that waits for a storage or for memory, in several threads if the system can start them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Thread
from typing import TypeVar

_S = TypeVar("_S")
_T = TypeVar("_T")


def in_threads(work: Callable[[_S], _T], items: Iterable[_S], most: int) -> list[_T]:
    """Return the results of `work` for all items, in order, by at most `most` threads, at least 2.

    `work` may be called from several threads. The calling thread works, too. If no other one can be started, as under a
    container's limit or at the exit of Python, it does all of the remaining work.
    """
    left = list(items)
    if len(left) < 2:
        return [work(item) for item in left]
    found, failed = dict[int, _T](), dict[int, BaseException]()
    todo = deque(range(len(left)))

    def run() -> None:
        with suppress(IndexError):
            while True:
                number = todo.popleft()
                try:
                    found[number] = work(left[number])
                except BaseException as exc:  # noqa: BLE001 - raised by the caller
                    failed[number] = exc
                    todo.clear()

    threads = [Thread(target=run) for _ in range(min(most, len(left)) - 1)]
    started = 0
    try:
        with suppress(RuntimeError):
            for thread in threads:
                thread.start()
                started += 1
        run()
    finally:
        todo.clear()
        for thread in threads[:started]:
            thread.join()
    if failed:
        try:
            raise failed[min(failed)]
        finally:
            failed.clear()  # its traceback has this frame, and so the results
            found.clear()
    return [found[number] for number in range(len(left))]
