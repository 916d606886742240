"""What optimizers of tf.compat.v1 are told: the losses that they minimize, and the gradients."""

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
    """A sparse gradient: the tensor that its name belongs to has its rows."""

    indices: str
    shape: tuple[int, ...]

    def dense(self, rows: Array, indices: Array) -> Array:
        """An array of the whole gradient. Rows of one index add up."""
        whole = np.zeros(self.shape, rows.dtype)
        np.add.at(whole, indices, rows)
        return whole


class _Scaling(threading.local):
    """The gradients that an optimizer inside of one for mixed precision computes in this thread; None outside of it."""

    met: list[Gradients] | None = None


_scaling = _Scaling()


class Gradients:
    """The gradients and the losses that optimizers have met, by name: a job may build the same graph many times."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        """Of each gradient the variable that it is of."""
        self.losses: set[str] = set()
        self.slices: dict[str, Slices] = {}

    def follow(self, optimizer: Any, stands_in: Callable[[Any], Any]) -> None:
        """See what an optimizer computes and what it applies: often not the same, when gradients are clipped.
        `stands_in` is called with what takes the place of its methods."""
        compute, apply = optimizer.compute_gradients, optimizer.apply_gradients

        @stands_in
        @functools.wraps(compute)
        def compute_gradients(*args: Any, **kwargs: Any) -> Any:
            pairs = compute(*args, **kwargs)
            if _scaling.met is None:
                self._add_computed(kwargs["loss"] if "loss" in kwargs else args[0], pairs)
            else:
                _scaling.met.append(self)
            return pairs

        @stands_in
        @functools.wraps(apply)
        def apply_gradients(grads_and_vars: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
            # It may be an iterator, and the optimizer wants it too.
            pairs = list(grads_and_vars)
            self._add(pairs)
            return apply(pairs, *args, **kwargs)

        optimizer.compute_gradients, optimizer.apply_gradients = compute_gradients, apply_gradients
        _watch_scaling()

    def _add_computed(self, loss: Any, pairs: Iterable[tuple[Any, Any]]) -> None:
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
def _watch_scaling() -> None:
    """Take, of an optimizer that TensorFlow's mixed precision is put around, not the gradients of the scaled loss that
    it computes, but what mixed precision makes of them."""
    kind = tf.compat.v1.mixed_precision.MixedPrecisionLossScaleOptimizer
    compute = kind.compute_gradients

    @functools.wraps(compute)
    def compute_gradients(optimizer: Any, loss: Any, *args: Any, **kwargs: Any) -> Any:
        outer, _scaling.met = _scaling.met, []
        try:
            pairs, met = compute(optimizer, loss, *args, **kwargs), _scaling.met
        finally:
            _scaling.met = outer
        for gradients in met or ():
            gradients._add_computed(loss, pairs)
        return pairs

    kind.compute_gradients = compute_gradients
