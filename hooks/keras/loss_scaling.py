"""Observers of the losses that optimizers scale for mixed precision."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras

from .backend import loss_scale
from .patches import SharedPatches, Wrap

ScalingObserver = Callable[[Any, Any, Any], None]
"""Called with the scaled loss, the loss, and the scale."""


class _Thread(threading.local):
    observer: ScalingObserver | None = None


_thread = _Thread()


@contextmanager
def observe_scaling(observer: ScalingObserver) -> Iterator[None]:
    """Notify the observer of each loss that an optimizer scales in this thread inside the block."""
    with _patches.applied():
        outer, _thread.observer = _thread.observer, observer
        try:
            yield
        finally:
            _thread.observer = outer


def _scaling_methods() -> Iterator[tuple[type, str, Wrap]]:
    """Yield the methods of optimizers that scale a loss: those of Keras 2, or of Keras 3."""
    module = sys.modules.get("keras.src.mixed_precision.loss_scale_optimizer")
    if module is not None:
        yield module.LossScaleOptimizer, "get_scaled_loss", _wrap_scaling
        yield module.LossScaleOptimizerV3, "get_scaled_loss", _wrap_scaling
    elif hasattr(keras.optimizers.Optimizer, "scale_loss"):
        base = next(each for each in keras.optimizers.Optimizer.__mro__ if "scale_loss" in vars(each))
        yield base, "scale_loss", _wrap_scaling
        yield keras.optimizers.LossScaleOptimizer, "scale_loss", _wrap_scaling


def _wrap_scaling(scale: Callable[..., Any]) -> Callable[..., Any]:
    def observed(optimizer: Any, loss: Any) -> Any:
        result, observer = scale(optimizer, loss), _thread.observer
        # Keras 2 also scales functions that compute a loss later.
        if observer is not None and result is not loss and not callable(loss):
            observer(result, loss, loss_scale(optimizer))
        return result

    return observed


_patches = SharedPatches(_scaling_methods)
