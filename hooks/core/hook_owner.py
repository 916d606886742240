"""What callbacks and loggers for training libraries are made with: a hook, or the arguments of one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from .integrations import check_hook_arguments, default_out_dir
from .recorder import Recorder


class HookOwner:
    """Holds the hook of a callback: the caller's own, or one that is made when it is first needed.

    Before that a process may not know its rank.
    """

    _hook: Any
    _make: Callable[[], Any]

    def _own(
        self,
        hook_type: Callable[..., Any],
        out_dir: str | os.PathLike[str] | None,
        hook: Any,
        options: Mapping[str, Any],
    ) -> None:
        """Check the arguments of the constructor, and keep them.

        Raises:
            ConfigurationError: Both `hook` and arguments of one were given, or `hook` is not one.
            TypeError: The hook has no such argument.
        """
        check_hook_arguments(hook_type, out_dir, hook, options)
        self._hook = hook
        self._make = lambda: hook_type(default_out_dir("", False) if out_dir is None else out_dir, **options)

    @property
    def hook(self) -> Any:
        """The hook: register models, losses and optimizers with it. It is made when it is first needed."""
        if self._hook is None:
            self._hook = self._make()
        return self._hook

    @property
    def recorder(self) -> Recorder:
        """The recorder of the hook."""
        recorder: Recorder = self.hook.recorder
        return recorder

    def close(self) -> None:
        """Close the run, as the end of the process would."""
        if self._hook is not None:
            self._hook.close()
