"""The flushes of the runs that this process writes.

A reader in the writing process must see every closed step immediately, but readers and writers share only the storage.
So the writer registers its flush under the run's key, and each listing of that run calls it first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..forking import Lock, call_in_child

log = logging.getLogger(__name__)

_flushes: dict[str, dict[object, tuple[Callable[[], None], Callable[[], int]]]] = {}
_lock = Lock()


def add_flush(key: str, callback: Callable[[], None], written_by: Callable[[], int]) -> Callable[[], None]:
    """Call `callback` before each listing of the run `key` in this process. Return a function that ends this.

    `written_by` returns the identifier of the thread that writes the steps.
    """
    token = object()
    with _lock:
        _flushes.setdefault(key, {})[token] = callback, written_by

    def unregister() -> None:
        with _lock:
            callbacks = _flushes.get(key, {})
            callbacks.pop(token, None)
            if not callbacks:
                _flushes.pop(key, None)

    return unregister


def flush(key: str) -> None:
    """Call the flushes of the run `key`, without the lock, because a flush may take seconds, and may list the run."""
    if key not in _flushes:
        return
    with _lock:
        callbacks = list(_flushes.get(key, {}).values())
    for callback, _ in callbacks:
        try:
            callback()
        except Exception:
            log.exception("the writer of %s failed to flush; its last steps may not be seen yet", key)


def is_written_by(key: str, thread: int) -> bool:
    """Return whether a thread of this process writes the steps of the run `key`."""
    with _lock:
        return any(written_by() == thread for _, written_by in _flushes.get(key, {}).values())


@call_in_child
def _forget_flushes() -> None:
    # A forked child has the parent's callbacks but not its writer thread: calling one would wait forever.
    _flushes.clear()
