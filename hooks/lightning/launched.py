"""The callback of each Trainer in an unmodified script: `python -m tensortrial run train.py`."""

from __future__ import annotations

from typing import Any

from ..launch.launch import active_launch, has_own_hook
from ..pytorch import Hook, SaveConfig
from .callback import Callback


class LaunchedCallback(Callback):
    """A callback that saves the first training by a Trainer, unless the script has its own hook or callback."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Make the hook, and register the model."""
        if not self._gives_way(trainer):
            super().on_train_start(trainer, pl_module)

    def _begin_batch(self, trainer: Any, *args: Any) -> None:
        if not self._gives_way(trainer):
            super()._begin_batch(trainer, *args)

    def _gives_way(self, trainer: Any) -> bool:
        others = any(isinstance(each, Callback) and each is not self for each in trainer.callbacks)
        return self._hook is None and (others or has_own_hook())

    def _make(self, out_dir: Any, options: dict[str, Any], save_config: SaveConfig | None) -> Hook:
        launch = active_launch()
        made = launch and launch.make_hook(Hook, save_config, out_dir=out_dir, **options)
        return made or Hook(out_dir, dry_run=True)
