"""The losses and gradients that pass through the optimizers of tf.compat.v1."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tensortrial.dtypes import Array


@dataclass(frozen=True)
class Slices:
    """The indices and the shape of a sparse gradient. The tensor that has the gradient's name holds its rows."""

    indices: str
    shape: tuple[int, ...]

    def dense(self, rows: Array, indices: Array) -> Array:
        """Return the whole gradient as an array. Rows with the same index are added."""
        whole = np.zeros(self.shape, rows.dtype)
        np.add.at(whole, indices, rows)
        return whole


class _Scaling(threading.local):
    """The gradients that this thread's wrapped optimizers computed inside one for mixed precision; None outside."""

    inner: list[Gradients] | None = None


_scaling = _Scaling()


class Gradients:
    """The gradients and losses of wrapped optimizers, by name, because a job may build the same graph many times."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        """The name of each gradient's variable, by the name of the gradient."""
        self.losses: set[str] = set()
        self.slices: dict[str, Slices] = {}

    def observe(self, optimizer: Any, remember: Callable[[Any], Any]) -> None:
        """Observe the gradients that an optimizer computes and applies, which differ if they are clipped.

        `remember` is called with the replacements of its methods.
        """
        compute, apply = optimizer.compute_gradients, optimizer.apply_gradients

        @remember
        @functools.wraps(compute)
        def compute_gradients(*args: Any, **kwargs: Any) -> Any:
            pairs = compute(*args, **kwargs)
            if _scaling.inner is None:
                self.add_computed(kwargs["loss"] if "loss" in kwargs else args[0], pairs)
            else:
                _scaling.inner.append(self)
            return pairs

        @remember
        @functools.wraps(apply)
        def apply_gradients(grads_and_vars: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
            # It may be an iterator, which can be read only once.
            pairs = list(grads_and_vars)
            self._add(pairs)
            return apply(pairs, *args, **kwargs)

        optimizer.compute_gradients, optimizer.apply_gradients = compute_gradients, apply_gradients
        _observe_scaling()

    def add_computed(self, loss: Any, pairs: Iterable[tuple[Any, Any]]) -> None:
        """Add the gradients that an optimizer has computed of a loss."""
        if tf.is_tensor(loss):
            self.losses.add(loss.name)
        self._add(pairs)

    def _add(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        for gradient, variable in pairs:
            if isinstance(gradient, tf.IndexedSlices):
                self.names[gradient.values.name] = variable.name
                if variable.shape.is_fully_defined():
                    shape = tuple(variable.shape.as_list())
                    self.slices[gradient.values.name] = Slices(gradient.indices.name, shape)
            elif tf.is_tensor(gradient):
                self.names[gradient.name] = variable.name


@functools.cache
def _observe_scaling() -> None:
    """Save unscaled gradients of a wrapped optimizer inside one for mixed precision.

    The inner optimizer computes gradients of the scaled loss; the outer one returns them unscaled.
    """
    outer_class = tf.compat.v1.mixed_precision.MixedPrecisionLossScaleOptimizer
    compute = outer_class.compute_gradients

    @functools.wraps(compute)
    def compute_gradients(optimizer: Any, loss: Any, *args: Any, **kwargs: Any) -> Any:
        before, _scaling.inner = _scaling.inner, []
        try:
            pairs, inner = compute(optimizer, loss, *args, **kwargs), _scaling.inner
        finally:
            _scaling.inner = before
        for gradients in inner or ():
            gradients.add_computed(loss, pairs)
        return pairs

    outer_class.compute_gradients = compute_gradients
