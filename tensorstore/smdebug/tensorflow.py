"""The hooks of smdebug.tensorflow, whose other names are those of `tensortrial.hooks.tensorflow`."""

from __future__ import annotations

from typing import Any

from tensortrial.errors import ConfigurationError
from tensortrial.hooks import tensorflow
from tensortrial.hooks.core import current_hook

from .hooks import ScriptHook


class SessionHook(ScriptHook, tensorflow.SessionHook):
    """The hook for sessions, as scripts for smdebug use it."""


class EstimatorHook(SessionHook, tensorflow.EstimatorHook):
    """The hook for estimators, as scripts for smdebug use it."""


_HOOKS = {"session": SessionHook, "estimator": EstimatorHook}


def get_hook(
    hook_type: str | None = None, json_config_path: str | None = None, create_if_not_exists: bool = False
) -> Any:
    """Return the current hook: the one that was made last.

    Args:
        hook_type: The type of a hook that is made: "keras", which is the default, "session" or "estimator".
        json_config_path: The JSON configuration of a hook that is made.
        create_if_not_exists: Make a hook if there is none, and a JSON configuration exists.

    Raises:
        ConfigurationError: A hook of another type is to be made.
    """

    def create(path: str | None) -> Any:
        if (hook_type or "keras") == "keras":
            from .keras import KerasHook  # takes seconds, and sessions do not need it

            return KerasHook.create_from_json_file(path)
        if hook_type not in _HOOKS:
            raise ConfigurationError(f"hook_type must be one of keras, {', '.join(_HOOKS)}, got {hook_type!r}")
        return _HOOKS[hook_type].create_from_json_file(path)

    return current_hook.get_or_create(create, json_config_path, create_if_not_exists)
