"""Watching the calls of all layers of Keras in one thread, while anyone wants to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import keras

from .keras_backend import unconverted

Before = Callable[[Any, bool, tuple[Any, ...], Mapping[str, Any]], None]
After = Callable[[Any, bool, Any], None]


class _Watcher(threading.local):
    """Who watches in this thread, and how many calls are inside of one another."""

    before: Before | None = None
    after: After | None = None
    depth = 0


_watcher = _Watcher()
_lock = threading.Lock()
_watching = 0
_own_call: Any = None


@contextmanager
def watching_calls(before: Before, after: After) -> Iterator[None]:
    """Inside the block, each call of a layer in this thread is told of, with whether it is inside of no other. The
    class of layers is touched only while anyone watches; several threads may, such as those of replicas."""
    _install()
    outer = _watcher.before, _watcher.after, _watcher.depth
    _watcher.before, _watcher.after, _watcher.depth = before, after, 0
    try:
        yield
    finally:
        _watcher.before, _watcher.after, _watcher.depth = outer
        _remove()


def _install() -> None:
    global _watching, _own_call
    with _lock:
        if not _watching:
            _own_call = keras.layers.Layer.__call__
            keras.layers.Layer.__call__ = unconverted(_around(_own_call))
        _watching += 1


def _remove() -> None:
    global _watching
    with _lock:
        _watching -= 1
        if not _watching:
            keras.layers.Layer.__call__ = _own_call


def _around(call: Callable[..., Any]) -> Callable[..., Any]:
    def watched(layer: Any, *args: Any, **kwargs: Any) -> Any:
        before, after, outermost = _watcher.before, _watcher.after, not _watcher.depth
        if before is None or after is None:
            return call(layer, *args, **kwargs)
        before(layer, outermost, args, kwargs)
        _watcher.depth += 1
        try:
            output = call(layer, *args, **kwargs)
        finally:
            _watcher.depth -= 1
        after(layer, outermost, output)
        return output

    return watched
