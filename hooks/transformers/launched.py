"""The callback of each Trainer in an unmodified script: `python -m tensortrial run train.py`."""

from __future__ import annotations

from typing import Any

from transformers import trainer

from ..launch.launch import active_launch, has_own_hook
from ..pytorch import Hook, SaveConfig
from .callback import TensorTrialCallback


def activate() -> None:
    """Add a callback to each new Trainer."""
    if LaunchedCallback not in trainer.DEFAULT_CALLBACKS:
        trainer.DEFAULT_CALLBACKS.append(LaunchedCallback)


class LaunchedCallback(TensorTrialCallback):
    """A callback that saves the first training by a Trainer, unless the script has its own hook or callback."""

    def _begin(self, args: Any, state: Any, model: Any) -> None:
        others = any(not isinstance(each, LaunchedCallback) for each in self.instances)
        if self._hook is None and (others or has_own_hook()):
            return
        super()._begin(args, state, model)

    def _make(self, out_dir: Any, options: dict[str, Any], save_config: SaveConfig | None) -> Hook:
        launch = active_launch()
        made = launch and launch.make_hook(Hook, save_config, out_dir=out_dir, **options)
        return made or Hook(out_dir, dry_run=True)
