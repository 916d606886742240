"""The hook of smdebug.mxnet, whose other names are those of `tensortrial.hooks.mxnet`."""

from __future__ import annotations

from typing import Any

from tensortrial.errors import ConfigurationError
from tensortrial.hooks import mxnet

from .hooks import ScriptHook, getter


class Hook(ScriptHook, mxnet.Hook):
    """The MXNet hook, as scripts for smdebug use it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        overridden = [name for name in ("forward_hook", "forward_pre_hook") if hasattr(type(self), name)]
        if overridden:
            raise ConfigurationError(
                f"{type(self).__name__} has the method {overridden[0]}, which is not called here: call "
                "block.register_forward_hook with a function that calls hook.save_tensor(name, array)"
            )
        super().__init__(*args, **kwargs)


get_hook = getter(Hook.create_from_json_file, creates=True)
