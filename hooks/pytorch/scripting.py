"""The exclusion of this package's callbacks from torch.jit.

torch.jit compiles a module together with its callbacks, and cannot compile these.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .callbacks import is_own_callback

_CALLBACKS = ("_forward_hooks", "_forward_pre_hooks")


def hide_callbacks_from_scripting() -> None:
    """Make torch.jit.script and torch.jit.trace compile modules without this package's callbacks.

    It may be called twice.
    """
    recursive: Any = torch.jit._recursive
    original = getattr(recursive, "create_script_module", None)
    if original is None or hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def create_script_module(nn_module: Any, *args: Any, **kwargs: Any) -> Any:
        with _without_callbacks(nn_module):
            return original(nn_module, *args, **kwargs)

    recursive.create_script_module = create_script_module


@contextmanager
def _without_callbacks(root: Any) -> Iterator[None]:
    """Remove this package's callbacks from a module and its submodules inside the block."""
    replaced = []
    for module in root.modules() if isinstance(root, torch.nn.Module) else ():
        for kind in _CALLBACKS:
            callbacks = module.__dict__.get(kind)
            if callbacks and any(map(is_own_callback, callbacks.values())):
                replaced.append((module, kind, callbacks))
                others = OrderedDict((key, each) for key, each in callbacks.items() if not is_own_callback(each))
                module.__dict__[kind] = others
    try:
        yield
    finally:
        for module, kind, callbacks in replaced:
            module.__dict__[kind] = callbacks
