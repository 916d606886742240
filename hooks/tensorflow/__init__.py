"""The hooks for TensorFlow.

import tensortrial.hooks.tensorflow as tt

hook = tt.KerasHook(out_dir="runs/digits")          # model.fit(…, callbacks=[hook])
hook = tt.SessionHook(out_dir="runs/digits")        # sessions of tf.compat.v1
hook = tt.EstimatorHook(out_dir="runs/digits")      # tf.estimator
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tensortrial.errors import ConfigurationError

from ..core import current_hook, shared_names
from ..core.shared_names import *
from ..session.estimator import EstimatorHook
from ..session.hook import Collection, SessionHook

if TYPE_CHECKING:
    from ..keras.hook import KerasHook

__all__ = ["Collection", "EstimatorHook", "KerasHook", "SessionHook", "get_hook"]
__all__ += shared_names.__all__

_HOOKS = {"keras": "KerasHook", "session": "SessionHook", "estimator": "EstimatorHook"}


def get_hook(
    hook_type: str | None = None, json_config_path: str | None = None, create_if_not_exists: bool = False
) -> Any:
    """Return the current hook.

    Args:
        hook_type: The type of a hook that is created: "keras", which is the default, "session" or "estimator".
        json_config_path: The JSON configuration of a hook that is created; see `create_from_json_file`.
        create_if_not_exists: Make a hook if there is none, and a JSON configuration exists.

    Returns:
        The hook that was made last or passed to `set_hook`; None if there is none.

    Raises:
        ConfigurationError: A hook of another type is to be created.
    """

    def create(path: str | None) -> Any:
        name = hook_type or "keras"
        if name not in _HOOKS:
            raise ConfigurationError(f"hook_type must be one of {', '.join(_HOOKS)}, got {hook_type!r}")
        return getattr(sys.modules[__name__], _HOOKS[name]).create_from_json_file(path)

    return current_hook.get_or_create(create, json_config_path, create_if_not_exists)


def __getattr__(name: str) -> Any:
    # Keras takes seconds to import, and sessions do not need it.
    if name == "KerasHook":
        from ..keras.hook import KerasHook

        return KerasHook
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
