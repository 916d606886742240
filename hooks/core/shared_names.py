"""The names that the module of every framework has, next to its own `Hook`, `Collection` and `get_hook`."""

from __future__ import annotations

from tensortrial.config.collection import CollectionKeys
from tensortrial.config.reduction_config import ReductionConfig
from tensortrial.config.save_config import SaveConfig, SaveConfigMode
from tensortrial.mode import ModeKeys, modes
from tensortrial.read.opening import create_trial

from .current_hook import del_hook, set_hook

__all__ = [
    "CollectionKeys",
    "ModeKeys",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "create_trial",
    "del_hook",
    "modes",
    "set_hook",
]
