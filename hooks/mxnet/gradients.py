"""The gradients of a Gluon parameter on each device, without the scale of amp."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensortrial.dtypes import Array

from .arrays import host_copy


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradient of a parameter on one device."""

    array: Any
    scale: float
    """The factor by which amp multiplied the loss, and so the gradient."""

    def unscaled(self) -> Array:
        """Return the gradient of the unscaled loss as a host array.

        Float16 becomes float32: gradients are scaled because they would be too small for float16 otherwise.
        """
        values = host_copy(self.array)
        if self.scale == 1.0:
            return values
        return values.astype(np.promote_types(values.dtype, np.float32)) / np.float32(self.scale)


def fresh_gradients(parameter: Any) -> Iterator[tuple[str, Gradient]]:
    """Yield the gradients that no trainer has used yet, with the suffix of their name: '' for the first device."""
    scale = _loss_scale(parameter)
    for number, (value, gradient) in enumerate(zip(parameter._data or (), parameter._grad or (), strict=False)):
        if value._fresh_grad:
            yield f"/{gradient.context}" if number else "", Gradient(gradient, scale)


def _loss_scale(parameter: Any) -> float:
    """Return the factor of `amp.scale_loss`, which divides the trainer's scale by the same factor."""
    trainer = parameter._trainer
    if getattr(trainer, "_amp_loss_scaler", None) is None or not trainer._scale:
        return 1.0
    return float(trainer._amp_original_scale / trainer._scale)
