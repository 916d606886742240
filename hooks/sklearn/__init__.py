"""The hook for scikit-learn: `import tensortrial.hooks.sklearn as tt`."""

from __future__ import annotations

from tensortrial.config.collection import Collection, CollectionKeys
from tensortrial.config.reduction_config import ReductionConfig
from tensortrial.config.save_config import SaveConfig, SaveConfigMode
from tensortrial.mode import ModeKeys, modes

from ..core.base_hook import create_trial
from ..core.current_hook import del_hook, set_hook
from .hook import Hook, get_hook

__all__ = [
    "Collection",
    "CollectionKeys",
    "Hook",
    "ModeKeys",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "create_trial",
    "del_hook",
    "get_hook",
    "modes",
    "set_hook",
]
