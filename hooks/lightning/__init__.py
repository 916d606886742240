"""The callback and the logger for Lightning.

from tensortrial.hooks.lightning import Callback, Logger

trainer = lightning.Trainer(callbacks=[Callback("runs/net", include_collections=["gradients"])])
trainer = lightning.Trainer(logger=Logger("runs/net"))        # metrics only
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .callback import Callback
    from .logger import Logger

__all__ = ["Callback", "Logger"]


def __getattr__(name: str) -> Any:
    # Lightning's entry point loads this package in every job that makes a Trainer, most of which save nothing here.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{name.lower()}", __name__), name)
