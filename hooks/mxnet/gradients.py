"""The gradients of a Gluon parameter: of each device, and without the scale of amp."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensortrial.dtypes import Array

from .arrays import host_copy


@dataclass(frozen=True, slots=True)
class Gradient:
    """What backward left of a parameter on one device."""

    array: Any
    scale: float
    """What amp multiplied the loss by, and with it the gradient."""

    def unscaled(self) -> Array:
        """A host array of the gradient of the loss itself.

        Half precision becomes single: gradients are scaled because they would be too small for it otherwise.
        """
        values = host_copy(self.array)
        if self.scale == 1.0:
            return values
        return values.astype(np.promote_types(values.dtype, np.float32)) / np.float32(self.scale)


def fresh_gradients(parameter: Any) -> Iterator[tuple[str, Gradient]]:
    """The gradients that no trainer has used yet, with what their device adds to the name: nothing for the first."""
    scale = _loss_scale(parameter)
    for number, (value, gradient) in enumerate(zip(parameter._data or (), parameter._grad or (), strict=False)):
        if value._fresh_grad:
            yield f"/{gradient.context}" if number else "", Gradient(gradient, scale)


def _loss_scale(parameter: Any) -> float:
    """What `amp.scale_loss` multiplied the loss by; it made the trainer's scale smaller by as much."""
    trainer = parameter._trainer
    if getattr(trainer, "_amp_loss_scaler", None) is None or not trainer._scale:
        return 1.0
    return float(trainer._amp_original_scale / trainer._scale)
