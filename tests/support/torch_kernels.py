"""What torch computes and copies inside of a block."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Kernels(TorchDispatchMode):
    """Counts the operations that a device would compute, which views are not."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_view = function.is_view or function.namespace != "aten" or "unbind" in str(function)
        self.count += not is_view
        return function(*args, **(kwargs or {}))


class Clones(TorchDispatchMode):
    """Remembers the clones of tensors, without keeping them alive."""

    def __init__(self) -> None:
        super().__init__()
        self._made: list[weakref.ref[Any]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if function is torch.ops.aten.clone.default:
            self._made.append(weakref.ref(result))
        return result

    @property
    def made(self) -> int:
        """The number of clones."""
        return len(self._made)

    @property
    def alive(self) -> int:
        """The number of clones that something still refers to."""
        return sum(each() is not None for each in self._made)
