"""Work that waits for a storage, in several threads if the system can start them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

_S = TypeVar("_S")
_T = TypeVar("_T")


def in_threads(work: Callable[[_S], _T], items: Iterable[_S], most: int) -> list[_T]:
    """Return the results of `work` for all items, in order.

    If no thread can be started, as under a container's limit or at the exit of Python, this thread does the remaining
    work.

    Args:
        work: A function that may be called from several threads, and twice for one item.
        items: The arguments of `work`.
        most: The most threads.
    """
    left = list(items)
    if len(left) < 2:
        return [work(item) for item in left]
    from concurrent.futures import ThreadPoolExecutor

    pending = []
    with ThreadPoolExecutor(min(most, len(left))) as pool:
        try:
            for item in left:
                pending.append(pool.submit(work, item))
        except RuntimeError:
            pass
        return [each.result() for each in pending] + [work(item) for item in left[len(pending) :]]
