"""Watching the calls of all layers of Keras in one thread, and the scaling of losses, while anyone wants to."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import keras

from .backend import loss_scale, unconverted

Before = Callable[[Any, bool, tuple[Any, ...], Mapping[str, Any]], None]
After = Callable[[Any, bool, Any], None]
Scaled = Callable[[Any, Any, Any], None]


class _Watcher(threading.local):
    """Who watches in this thread, and how many calls are inside of one another."""

    before: Before | None = None
    after: After | None = None
    scaled: Scaled | None = None
    depth = 0


_watcher = _Watcher()
_lock = threading.Lock()
_watching = 0
_own: list[tuple[type, str, Any]] = []


@contextmanager
def watching_calls(before: Before, after: After, scaled: Scaled) -> Iterator[None]:
    """Inside the block, report each call of a layer in this thread, with whether it is inside of no other, and each
    loss that an optimizer scales: what it became, what it was, and the scale.

    The classes of layers and optimizers are touched only while anyone watches; several threads may, such as those of
    replicas.
    """
    _install()
    outer = _watcher.before, _watcher.after, _watcher.scaled, _watcher.depth
    _watcher.before, _watcher.after, _watcher.scaled, _watcher.depth = before, after, scaled, 0
    try:
        yield
    finally:
        _watcher.before, _watcher.after, _watcher.scaled, _watcher.depth = outer
        _remove()


def _install() -> None:
    global _watching
    with _lock:
        if not _watching:
            _replace(keras.layers.Layer, "__call__", _around)
            for owner, name in _scaling_methods():
                _replace(owner, name, _around_scaling)
        _watching += 1


def _remove() -> None:
    global _watching
    with _lock:
        _watching -= 1
        while not _watching and _own:
            setattr(*_own.pop())


def _replace(owner: type, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    own = getattr(owner, name)
    _own.append((owner, name, own))
    setattr(owner, name, unconverted(around(own)))


def _scaling_methods() -> Iterator[tuple[type, str]]:
    """The methods of optimizers that scale a loss: of Keras 2, or of Keras 3."""
    module = sys.modules.get("keras.src.mixed_precision.loss_scale_optimizer")
    if module is not None:
        yield module.LossScaleOptimizer, "get_scaled_loss"
        yield module.LossScaleOptimizerV3, "get_scaled_loss"
    elif hasattr(keras.optimizers.Optimizer, "scale_loss"):
        base = next(each for each in keras.optimizers.Optimizer.__mro__ if "scale_loss" in vars(each))
        yield base, "scale_loss"
        yield keras.optimizers.LossScaleOptimizer, "scale_loss"


def _around_scaling(scale: Callable[..., Any]) -> Callable[..., Any]:
    def watched(optimizer: Any, loss: Any) -> Any:
        result, scaled = scale(optimizer, loss), _watcher.scaled
        # Keras 2 also scales functions that compute a loss later.
        if scaled is not None and result is not loss and not callable(loss):
            scaled(result, loss, loss_scale(optimizer))
        return result

    return watched


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
