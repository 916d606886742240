"""The hook for Keras and for TensorFlow's gradient tapes: `from tensortrial.hooks.keras import KerasHook`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..core import shared_names
from ..core.shared_names import *

if TYPE_CHECKING:
    from .hook import Collection, KerasHook, get_hook

__all__ = ["Collection", "KerasHook", "get_hook"]
__all__ += shared_names.__all__


def __getattr__(name: str) -> Any:
    # Keras takes seconds to import, and sessions, which use modules of this package, do not need it.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".hook", __name__), name)
