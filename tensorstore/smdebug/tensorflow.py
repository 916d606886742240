"""The names of smdebug.tensorflow."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tensortrial.errors import ConfigurationError
from tensortrial.hooks import tensorflow
from tensortrial.hooks.core import current_hook
from tensortrial.hooks.tensorflow import (
    Collection,
    CollectionKeys,
    ModeKeys,
    ReductionConfig,
    SaveConfig,
    SaveConfigMode,
    del_hook,
    modes,
    set_hook,
)

from .hooks import ScriptHook
from .trials import create_trial

if TYPE_CHECKING:
    from .keras import KerasHook

__all__ = [
    "Collection",
    "CollectionKeys",
    "EstimatorHook",
    "KerasHook",
    "ModeKeys",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "SessionHook",
    "create_trial",
    "del_hook",
    "get_hook",
    "modes",
    "set_hook",
]

_HOOKS = {"keras": "KerasHook", "session": "SessionHook", "estimator": "EstimatorHook"}


class SessionHook(ScriptHook, tensorflow.SessionHook):
    """The hook for sessions, as scripts for smdebug use it."""


class EstimatorHook(SessionHook, tensorflow.EstimatorHook):
    """The hook for estimators, as scripts for smdebug use it."""


def get_hook(
    hook_type: str | None = None, json_config_path: str | None = None, create_if_not_exists: bool = False
) -> Any:
    """Return the current hook: the one that was made last.

    Args:
        hook_type: The type of a hook that is made: "keras", which is the default, "session" or "estimator".
        json_config_path: The JSON configuration of a hook that is made.
        create_if_not_exists: Make a hook if there is none, and a JSON configuration exists.

    Returns:
        The hook; None if there is none.

    Raises:
        ConfigurationError: A hook of another type is to be made.
    """

    def create(path: str | None) -> Any:
        name = hook_type or "keras"
        if name not in _HOOKS:
            raise ConfigurationError(f"hook_type must be one of {', '.join(_HOOKS)}, got {hook_type!r}")
        return getattr(sys.modules[__name__], _HOOKS[name]).create_from_json_file(path)

    return current_hook.get_hook(hook_type, json_config_path, create_if_not_exists, create=create)


def __getattr__(name: str) -> Any:
    # Keras takes seconds to import, and sessions do not need it.
    if name == "KerasHook":
        from .keras import KerasHook

        return KerasHook
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
