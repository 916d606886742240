"""The Keras hook, as scripts for smdebug use it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tensortrial.config.collection import CollectionKeys
from tensortrial.format.record import Step
from tensortrial.hooks.core.recorder import guarded
from tensortrial.hooks.keras.backend import outside_of_graphs, user_array
from tensortrial.hooks.keras.hook import KerasHook as NativeHook
from tensortrial.hooks.keras.names import VariableNaming
from tensortrial.mode import modes

from .hooks import ScriptHook


class ScriptNaming(VariableNaming):
    """The names that scripts for smdebug read: `Adam/beta_1:0`, and `weights/dense/kernel:0` under a tape."""

    def optimizer_variables(self, collections: Any, optimizers: Iterable[Any]) -> list[tuple[str, Any]]:
        """Return the variables of optimizers, and their settings that are variables, as in Keras 2 before 2.11."""
        named: list[tuple[str, Any]] = []
        for optimizer in {id(each): each for each in optimizers if each is not None}.values():
            found = super().optimizer_variables(collections, [optimizer])
            named += _with_settings(optimizer, [(name.removeprefix("optimizer/"), each) for name, each in found])
        collections.require(CollectionKeys.OPTIMIZER_VARIABLES).add_tensor_names([name for name, _ in named])
        return named

    def tape_weight(self, name: str) -> str:
        """Return the name without the layer in front."""
        return f"weights/{name.partition('/weights/')[2] or name}"


def _with_settings(optimizer: Any, found: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return variables by names with the optimizer's as a prefix, including settings that are variables."""
    with outside_of_graphs():  # Keras reads its variables for this
        config = optimizer.get_config()
    folder = config.get("name") or type(optimizer).__name__
    named = [(name if "/" in name else f"{folder}/{name}", variable) for name, variable in found]
    known = {name for name, _ in named}
    settings = ((f"{folder}/{setting}:0", getattr(optimizer, setting, None)) for setting in config)
    return named + [(name, each) for name, each in settings if hasattr(each, "assign") and name not in known]


class KerasHook(ScriptHook, NativeHook):  # type: ignore[misc]  # each has a recorder; that of Keras leads others
    """The Keras hook, as scripts for smdebug use it."""

    naming = ScriptNaming()
    _last_logged: int | None = None
    """The newest step of mode TRAIN whose losses and metrics are saved."""

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Save the losses and metrics of the last batch of an epoch for any interval, as smdebug did."""
        self._save_last_logs(logs or {})
        super().on_epoch_end(epoch, logs)

    def _save_logs(self, logs: Mapping[str, Any], step: Step | None = None) -> None:
        super()._save_logs(logs, step)
        if (self.mode if step is None else step.mode) is modes.TRAIN:
            self._last_logged = self.mode_steps[modes.TRAIN]

    @guarded
    def _save_last_logs(self, logs: Mapping[str, Any]) -> None:
        if not self.recorder.active or self._is_elsewhere():
            return
        self._withdraw_unfinished()
        last = self.mode_steps.get(modes.TRAIN)
        if last is None or last == self._last_logged:
            return
        for name, value in logs.items():
            collection = self._collection_of(str(name))
            config = self.recorder.collections.require(collection).save_config
            if not name.startswith("val_") and (config is None or config.get_save_config(modes.TRAIN).end_step != 0):
                for recorder in self.recorder.all:
                    recorder.save_tensor(name, user_array(value), collection, step=last, mode=modes.TRAIN)
