"""The losses in the output of a model."""

from __future__ import annotations

from typing import Any

import torch

from .arrays import tensors_in


def losses_in(output: Any) -> list[torch.Tensor]:
    """Return the losses in the output of a model, which is a tensor or a container of tensors and other containers.

    They are the scalars with `loss` in their key (`ModelOutput.loss`, `{"loss_classifier": ...}`) or, if there are
    none, those that require a gradient.
    """
    scalars = [(key, tensor) for key, tensor in tensors_in(output) if is_scalar(tensor)]
    named = [tensor for key, tensor in scalars if is_loss_key(key)]
    return named or [tensor for _, tensor in scalars if tensor.ndim == 0 and tensor.requires_grad]


def is_scalar(tensor: torch.Tensor) -> bool:
    """Return whether a tensor can be a loss: one number."""
    with torch._C.DisableTorchFunctionSubclass():  # a class of tensors may raise anything
        return not tensor.is_nested and tensor.is_floating_point() and tensor.numel() == 1


def is_loss_key(key: str | None) -> bool:
    """Return whether a key names a loss."""
    return key is not None and "loss" in key.lower()
