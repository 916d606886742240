"""torch.jit compiles the callbacks of a module together with it, and none of this package's can be compiled: it has to
see the module without them."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .callbacks import is_tap

_CALLBACKS = ("_forward_hooks", "_forward_pre_hooks")


def keep_taps_from_scripting() -> None:
    """Have torch.jit.script, and what traces, compile modules without their taps. Calling this twice is fine."""
    recursive: Any = torch.jit._recursive
    original = getattr(recursive, "create_script_module", None)
    if original is None or hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def create_script_module(nn_module: Any, *args: Any, **kwargs: Any) -> Any:
        with _without_taps(nn_module):
            return original(nn_module, *args, **kwargs)

    recursive.create_script_module = create_script_module


@contextmanager
def _without_taps(root: Any) -> Iterator[None]:
    """Exchange the callbacks of a module, and of those inside, for those of others."""
    exchanged = []
    for module in root.modules() if isinstance(root, torch.nn.Module) else ():
        for kind in _CALLBACKS:
            callbacks = module.__dict__.get(kind)
            if callbacks and any(map(is_tap, callbacks.values())):
                exchanged.append((module, kind, callbacks))
                others = OrderedDict((key, each) for key, each in callbacks.items() if not is_tap(each))
                module.__dict__[kind] = others
    try:
        yield
    finally:
        for module, kind, callbacks in exchanged:
            module.__dict__[kind] = callbacks
