"""The hook for MXNet: `import tensortrial.hooks.mxnet as tt`."""

from __future__ import annotations

from .hook import (
    Collection,
    CollectionKeys,
    Hook,
    ModeKeys,
    ReductionConfig,
    SaveConfig,
    SaveConfigMode,
    create_trial,
    del_hook,
    get_hook,
    modes,
    set_hook,
)

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
