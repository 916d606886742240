"""The hook of a callback or a logger for a training library, given as a hook or as its arguments."""

from __future__ import annotations

import inspect
import os
from typing import Any

from tensortrial.config.reduction_config import boolean
from tensortrial.config.save_config import SaveConfig, with_save_config
from tensortrial.errors import ConfigurationError, shown
from tensortrial.suggestions import meant

from ..core.configuration.options import at_steps
from ..core.recorder import Recorder
from .integrations import default_out_dir


class HookOwner:
    """The base of classes that have a hook: the caller's own, or one that is made when it is first needed.

    Earlier, a process may not know its rank.
    """

    _hook_type: type

    def __init__(self, out_dir: str | os.PathLike[str] | None = None, *, hook: Any = None, **options: Any) -> None:
        """Check the arguments, and keep them.

        Raises:
            ConfigurationError: Both `hook` and its arguments were given, `hook` is not a hook, or both `save_config`
                and its arguments were given.
            TypeError: The hook has no such argument.
        """
        super().__init__()
        _check(self._hook_type, out_dir, hook, options)
        with_save_config(options)  # checks them
        self._out_dir, self._options = out_dir, options
        self._hook = hook

    @property
    def hook(self) -> Any:
        """The hook: register models, losses and optimizers with it. It is made when it is first needed."""
        if self._hook is None:
            self._make_hook()
        return self._hook

    @property
    def recorder(self) -> Recorder:
        """The recorder of the hook."""
        return self.hook.recorder

    def close(self) -> None:
        """Close the run, as the end of the process would."""
        if self._hook is not None:
            self._hook.close()

    def _make_hook(self, parent: str = "", resumes: bool = False, save_config: SaveConfig | None = None) -> None:
        """Make the hook.

        `parent` is the library's output folder, which contains the run unless the user chose a folder. `save_config`
        has the steps of the library's own log, which are used if the options choose tensors but no steps.
        """
        out_dir = default_out_dir(parent, resumes) if self._out_dir is None else self._out_dir
        resumes = resumes or self._options.get("resume", False)
        self._hook = self._make(out_dir, {**self._options, "resume": resumes}, save_config)

    def _make(self, out_dir: str | os.PathLike[str], options: dict[str, Any], save_config: SaveConfig | None) -> Any:
        return self._hook_type(out_dir, **at_steps(options, save_config))


def _check(hook_type: type, out_dir: Any, hook: Any, options: dict[str, Any]) -> None:
    if hook is None:
        signature = inspect.signature(hook_type)
        try:
            signature.bind("" if out_dir is None else out_dir, **options)
        except TypeError as exc:
            help_text = f"help({_public_name(hook_type)}.__init__) lists the arguments"
            raise TypeError(f"{exc}; {help_text}{meant(options, signature.parameters)}") from None
        for name in [each for each in options if signature.parameters[each].annotation == "bool"]:
            options[name] = boolean(name, options[name])
    elif out_dir is not None or options:
        raise ConfigurationError("pass either a hook, or the out_dir and the options of one, not both")
    elif not isinstance(hook, hook_type):
        raise ConfigurationError(f"hook must be a {_public_name(hook_type)}, got {shown(hook)}")


def _public_name(hook_type: type) -> str:
    """Return the name of a hook's class as users import it: without the module in the framework's package."""
    package = hook_type.__module__.rpartition(".")[0].removesuffix(".hooks.plain")
    return f"{package}.{hook_type.__name__}"
