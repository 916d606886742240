"""The hook for PyTorch: `import tensortrial.hooks.pytorch as tt`."""

from __future__ import annotations

from tensortrial.config.collection import CollectionKeys
from tensortrial.config.reduction_config import ReductionConfig
from tensortrial.config.save_config import SaveConfig, SaveConfigMode
from tensortrial.mode import ModeKeys, modes

from ..core.base_hook import create_trial
from ..core.current_hook import del_hook, set_hook
from .attention import attention_statistics
from .hook import Collection, Hook, get_hook
from .replay import Replay

__all__ = [
    "Collection",
    "CollectionKeys",
    "Hook",
    "ModeKeys",
    "ReductionConfig",
    "Replay",
    "SaveConfig",
    "SaveConfigMode",
    "attention_statistics",
    "create_trial",
    "del_hook",
    "get_hook",
    "modes",
    "set_hook",
]
