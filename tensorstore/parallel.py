"""Work that waits for a storage or for memory, in several threads if the system can start them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

_S = TypeVar("_S")
_T = TypeVar("_T")


def in_threads(work: Callable[[_S], _T], items: Iterable[_S], most: int) -> list[_T]:
    """Return the results of `work` for all items, in order.

    The calling thread works, too. If no other one can be started, as under a container's limit or at the exit of
    Python, it does all of the remaining work.

    Args:
        work: A function that may be called from several threads, and twice for one item.
        items: The arguments of `work`.
        most: The most threads, at least 2.
    """
    left = list(items)
    if len(left) < 2:
        return [work(item) for item in left]
    from concurrent.futures import ThreadPoolExecutor

    pending, own = [], dict[int, _T]()
    pool = ThreadPoolExecutor(min(most, len(left)) - 1)
    try:
        with suppress(RuntimeError):
            for item in left[:-1]:
                pending.append(pool.submit(work, item))
        for number in reversed(range(len(left))):  # what no other thread has begun
            if number >= len(pending) or pending[number].cancel():
                own[number] = work(left[number])
        return [own[number] if number in own else pending[number].result() for number in range(len(left))]
    finally:
        pool.shutdown(cancel_futures=True)
