"""What optimizers of tf.compat.v1 are told: the losses that they minimize, and the gradients."""

from __future__ import annotations

import functools
from collections.abc import Iterable
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


class Gradients:
    """The gradients and the losses that optimizers have met, by name: a job may build the same graph many times."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        """Of each gradient the variable that it is of."""
        self.losses: set[str] = set()
        self.slices: dict[str, Slices] = {}

    def follow(self, optimizer: Any) -> None:
        """See what an optimizer computes and what it applies: often not the same, when gradients are clipped."""
        compute, apply = optimizer.compute_gradients, optimizer.apply_gradients

        @functools.wraps(compute)
        def compute_gradients(*args: Any, **kwargs: Any) -> Any:
            pairs = compute(*args, **kwargs)
            loss = kwargs["loss"] if "loss" in kwargs else args[0]
            if tf.is_tensor(loss):
                self.losses.add(loss.name)
            self._add(pairs)
            return pairs

        @functools.wraps(apply)
        def apply_gradients(grads_and_vars: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
            # It may be an iterator, and the optimizer wants it too.
            pairs = list(grads_and_vars)
            self._add(pairs)
            return apply(pairs, *args, **kwargs)

        optimizer.compute_gradients, optimizer.apply_gradients = compute_gradients, apply_gradients

    def _add(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        for gradient, variable in pairs:
            if isinstance(gradient, tf.IndexedSlices):
                self.names[gradient.values.name] = variable.name
                if variable.shape.is_fully_defined():
                    shape = tuple(variable.shape.as_list())
                    self.slices[gradient.values.name] = Slices(gradient.indices.name, shape)
            elif tf.is_tensor(gradient):
                self.names[gradient.name] = variable.name
