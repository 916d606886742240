"""Observers of the calls of Keras layers.

`Layer.__call__` is patched once for all observers, as long as there is one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import keras

from .patches import SharedPatches


class CallObserver(Protocol):
    """The object that is notified of the calls of layers."""

    def before_call(self, layer: Any, outermost: bool, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Receive the arguments of a call. `outermost` is True if it is not inside another layer's call."""

    def after_call(self, layer: Any, outermost: bool, output: Any) -> None:
        """Receive the output of a call that succeeded."""


class _Thread(threading.local):
    """The observer of one thread, and the depth of its nested calls."""

    observer: CallObserver | None = None
    depth = 0


_thread = _Thread()
_observers_of_all_threads: tuple[CallObserver, ...] = ()
_lock = threading.Lock()


@contextmanager
def observe_calls_in_this_thread(observer: CallObserver) -> Iterator[None]:
    """Notify the observer of the calls in this thread inside the block. An outer block's observer is not notified."""
    with _patches.applied():
        outer = _thread.observer, _thread.depth
        _thread.observer, _thread.depth = observer, 0
        try:
            yield
        finally:
            _thread.observer, _thread.depth = outer


@contextmanager
def observe_calls_in_all_threads(observer: CallObserver) -> Iterator[None]:
    """Notify the observer of calls in all threads inside the block: a strategy traces replicas in several threads."""
    global _observers_of_all_threads
    with _patches.applied():
        with _lock:
            _observers_of_all_threads = (*_observers_of_all_threads, observer)
        try:
            yield
        finally:
            with _lock:
                _observers_of_all_threads = tuple(o for o in _observers_of_all_threads if o is not observer)


def _wrap_call(call: Callable[..., Any]) -> Callable[..., Any]:
    def observed(layer: Any, *args: Any, **kwargs: Any) -> Any:
        observers = _observers_of_all_threads
        if _thread.observer is not None:
            observers = (*observers, _thread.observer)
        if not observers:
            return call(layer, *args, **kwargs)
        outermost = not _thread.depth
        for observer in observers:
            observer.before_call(layer, outermost, args, kwargs)
        _thread.depth += 1
        try:
            output = call(layer, *args, **kwargs)
        finally:
            _thread.depth -= 1
        for observer in observers:
            observer.after_call(layer, outermost, output)
        return output

    return observed


_patches = SharedPatches(lambda: [(keras.layers.Layer, "__call__", _wrap_call)])
