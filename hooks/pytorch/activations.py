"""The activation functions among a model's modules. A run stores them, so that rules find them under any name."""

from __future__ import annotations

import torch

from .names import Root, modules_of

_KINDS: tuple[type[torch.nn.Module], ...] = (torch.nn.ReLU, torch.nn.ReLU6, torch.nn.Tanh, torch.nn.Sigmoid)


def activations_in(root: Root) -> dict[str, str]:
    """Return the name of the class of each module that is a ReLU, tanh or sigmoid, by the name of the module."""
    model = root.module
    found: dict[str, str] = {}
    for path, module in modules_of(model) if model is not None else ():
        kind = next((each for each in _KINDS if isinstance(module, each)), None)
        if kind is not None:
            found[root.module_name(path)] = kind.__name__
    return found
