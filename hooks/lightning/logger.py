"""The logger for Lightning, which saves the values of `self.log` as scalars."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from tensortrial.mode import ModeKeys

from ..library.hook_owner import HookOwner
from ..library.integrations import numbers_in
from ..pytorch import Hook
from .base import lightning


class Logger(HookOwner, lightning.loggers.Logger):  # type: ignore[misc]
    """A logger that saves the values of `self.log` as scalars in mode TRAIN, at Lightning's steps.

    A `Callback` of the same Trainer that was made without arguments saves its tensors to the same run.

    Args:
        out_dir: The folder or URL of the run. Default: the environment variable TENSORTRIAL_OUT_DIR, else `tensortrial`
            in the working directory, with a number if a run is there.
        hook: A hook of your own, instead of `out_dir` and `options`.
        **options: Further arguments of `tensortrial.hooks.pytorch.Hook`.

    Raises:
        ConfigurationError: Both `hook` and arguments for a new hook were given.
    """

    _hook_type = Hook

    @property
    def experiment(self) -> Hook:
        """The hook. It is made when it is first needed."""
        return self.make_hook()

    def make_hook(self, resumes: bool = False) -> Hook:
        """Return the hook. Make it if there is none.

        Args:
            resumes: Continue the run in the folder.
        """
        if self._hook is None:
            self._make_hook(resumes=resumes)
        return self._hook

    @property
    def name(self) -> str:
        """The name that Lightning uses in paths of checkpoints."""
        return "tensortrial"

    @property
    def version(self) -> str:
        """The version that Lightning uses in paths of checkpoints: the last part of the run's path."""
        out_dir = self._hook.out_dir if self._hook is not None else self._out_dir
        return os.path.basename(os.fspath(out_dir or "").rstrip("/")) or "run"

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Save metrics.

        Args:
            metrics: Numbers by their names. Other values are left out.
            step: The step. Default: the open one.
        """
        self.make_hook().log(numbers_in(metrics), step=step, mode=ModeKeys.TRAIN)

    def log_hyperparams(self, params: Mapping[str, Any] | Namespace | None = None, *_: Any, **__: Any) -> None:
        """Keep hyperparameters, which become metadata of the run if it has not begun."""
        found = vars(params) if isinstance(params, Namespace) else params
        self.make_hook().recorder.run.add_metadata(found or {})

    def save(self) -> None:
        """Do nothing: the hook publishes by itself."""

    def finalize(self, status: str) -> None:
        """Publish saved steps. The run stays open, because a test may follow the training."""
        if self._hook is not None:
            self._hook.flush()
