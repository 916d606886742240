"""The attributes and methods that scripts for smdebug use on the hooks of all frameworks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from tensortrial.config.reduction_config import ReductionConfig, boolean, check_reduction_config
from tensortrial.config.reduction_config import names as as_names
from tensortrial.config.save_config import SaveConfig
from tensortrial.errors import ConfigurationError, shown
from tensortrial.hooks.core import current_hook
from tensortrial.hooks.core.base_hook import BaseHook
from tensortrial.hooks.core.configuration.collections import CollectionManager
from tensortrial.hooks.core.recorder import guarded
from tensortrial.mode import ModeKeys

from .constants import SCALAR_PREFIX

_INCLUDE_COLLECTIONS = 7
"""The position of the argument `include_collections` of a hook."""


class StepNumber(int):
    """The number of the newest step. A call begins a step: `with hook.step():`."""

    begin: Callable[..., AbstractContextManager[None]]

    def __call__(self, step: int | None = None, mode: ModeKeys | str | None = None) -> AbstractContextManager[None]:
        """Make everything inside a `with hook.step():` block one step, as `step` of this project's hooks does."""
        return self.begin(step, mode)

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        """Copy and pickle it as a plain number, because scripts save it in checkpoints."""
        return int, (int(self),)


class ScriptHook(BaseHook):
    """The additional methods that scripts use. It precedes this project's hook in a class's bases.

    It takes the same arguments as the hook. A crashed job begins its run again, unless `on_exists` says otherwise.
    """

    logger = logging.getLogger("tensortrial.hooks")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("on_exists", "restart_crashed")
        if len(args) <= _INCLUDE_COLLECTIONS:
            kwargs.setdefault("include_collections", ())  # [] is a choice: only what smdebug always saves
        super().__init__(*args, **kwargs)
        self.recorder.called_steps.joins_first = True

    @property  # type: ignore[override]
    def step(self) -> StepNumber:
        """The number of the newest step, over all modes; -1 before the first. `hook.step()` begins a step."""
        number = StepNumber(self.mode_steps[ModeKeys.GLOBAL])
        number.begin = super().step
        return number

    @step.setter
    def step(self, step: int) -> None:
        """Begin a new run after this step. This has no effect after the first step."""
        self._assign("step", step, lambda number: self.recorder.start_at(int(number) + 1))

    @property
    def last_saved_step(self) -> int | None:
        """The newest step at which a tensor was saved; None before the first. Setting it has no effect."""
        step = self.recorder.clock.step
        if step is None or not step.records:
            step = self.recorder.clock.last_saved
        return None if step is None else step.global_step

    @last_saved_step.setter
    def last_saved_step(self, step: int) -> None:
        pass

    @property
    def save_config(self) -> SaveConfig:
        """The steps to save, for collections without a SaveConfig of their own. Scripts set it before training."""
        return super().save_config

    @save_config.setter
    def save_config(self, config: SaveConfig) -> None:
        self._assign("save_config", config, self._replace_save_config)

    @property
    def reduction_config(self) -> ReductionConfig:
        """The form of saved tensors, for collections without a ReductionConfig of their own. Scripts set it, too."""
        return super().reduction_config

    @reduction_config.setter
    def reduction_config(self, config: ReductionConfig) -> None:
        self._assign("reduction_config", config, self._replace_reduction_config)

    def _replace_save_config(self, config: Any) -> None:
        """Save at other steps from here on, in the collections without a SaveConfig of their own."""
        parsed = SaveConfig.parse(config)
        parsed.inherit(self.recorder.save_config)
        self.recorder.collections.follow(parsed)
        self.recorder.save_config = parsed

    def _replace_reduction_config(self, config: Any) -> None:
        """Save in another form from here on, in the collections without a ReductionConfig of their own."""
        check_reduction_config(config)
        self.recorder.reduction_config = config or ReductionConfig()
        self.recorder.planner.follow(self.recorder.reduction_config)

    @property
    def export_tensorboard(self) -> bool:
        """True if event files for TensorBoard are written."""
        return self.recorder.options.export_tensorboard

    @export_tensorboard.setter
    def export_tensorboard(self, value: bool) -> None:
        self._assign("export_tensorboard", value, _too_late)

    @property
    def tensorboard_dir(self) -> str | None:
        """The folder of event files for TensorBoard; None if none are written."""
        folder = self.recorder.options.tensorboard_dir
        if folder is None and self.export_tensorboard:
            return f"{self.out_dir.rstrip('/')}/tensorboard"
        return None if folder is None else str(folder)

    @tensorboard_dir.setter
    def tensorboard_dir(self, folder: str | None) -> None:
        self._assign("tensorboard_dir", folder, _too_late)

    @property
    def dry_run(self) -> bool:
        """True if nothing is saved."""
        return self.recorder.options.dry_run

    @dry_run.setter
    def dry_run(self, value: bool) -> None:
        self._assign("dry_run", value, _too_late)

    @property
    def save_all(self) -> bool:
        """True if every tensor is saved. Set it before training to save all."""
        return "all" in self.recorder.collections.saved_names

    @save_all.setter
    def save_all(self, value: bool | str) -> None:
        self._assign("save_all", value, self._include_all)

    def _include_all(self, value: bool | str) -> None:
        if boolean("save_all", value):
            self.recorder.collections.include(["all"])
        elif self.save_all:
            _too_late(value)

    @property
    def include_collections(self) -> list[str]:
        """The names of the collections that are saved. Set it before training to save more."""
        return self.recorder.collections.saved_names

    @include_collections.setter
    def include_collections(self, names: Iterable[str] | str) -> None:
        self._assign("include_collections", names, self._replace_include_collections)

    def _replace_include_collections(self, names: Iterable[str] | str) -> None:
        self.recorder.collections.choose(as_names(names, "include_collections"))

    @property
    def include_regex(self) -> list[str]:
        """The regular expressions of the collection `default`."""
        return list(self.recorder.collections.require("default").include_regex)

    @property
    def collection_manager(self) -> CollectionManager:
        """The collections of the hook, each with the names of the tensors that it has saved."""
        collections = self.recorder.collections
        for plan in self.recorder.planner.made():
            for name in plan.collections:  # one that matched the tensor by a regex does not know its name
                collections.require(name).add_tensor_names([plan.name])
        return collections

    def has_default_configuration(self) -> bool:
        """Return whether the hook was made without an argument that chooses what is saved."""
        options = self.recorder.options
        return not (options.include_collections or options.include_regex or options.save_all)

    def export_collections(self) -> None:
        """Do nothing: the collections are published with the run."""

    @guarded
    def record_tensor_value(self, tensor_name: str, tensor_value: Any) -> None:
        """Save a tensor, as `save_tensor` does."""
        self.save_tensor(tensor_name, tensor_value)

    def _write_raw_tensor_simple(
        self, tensor_name: str, tensor_value: Any, tensor_ref: Any = None, timestamp: float | None = None
    ) -> None:
        if self.recorder.saving:
            self.save_tensor(tensor_name, tensor_value)

    def _assign(self, attribute: str, value: Any, assign: Callable[[Any], None]) -> None:
        """Set an attribute. A wrong value is logged, because an assignment must not end training."""
        try:
            assign(value)
        except (TypeError, ValueError) as exc:
            self.recorder.refuse_call(f"hook.{attribute} = {shown(value)}", exc)

    def _save_scalars(self, numbers: Iterable[tuple[str, Any]], *options: Any) -> None:
        """Save each number as `scalar/<name>`, as this project's hooks save it as `<name>`."""
        named = [(f"{SCALAR_PREFIX}{name}" if isinstance(name, str) else name, value) for name, value in numbers]
        super()._save_scalars(named, *options)


def _too_late(_: Any) -> None:
    raise ConfigurationError("pass it when the hook is made")


def getter(create: Callable[[str | None], Any], creates: bool) -> Callable[..., Any]:
    """Return the `get_hook` of a framework.

    Args:
        create: Makes a hook of the framework from the path of a JSON configuration.
        creates: Whether a hook is always made if there is none.
    """

    def get_hook(
        json_config_path: str | None = None, create_if_not_exists: bool = creates, hook_type: str | None = None
    ) -> Any:
        """Return the current hook: the one that was made last.

        Args:
            json_config_path: The JSON configuration of a hook that is made.
            create_if_not_exists: Make a hook if there is none, and a JSON configuration exists.
            hook_type: Has no effect.
        """
        return current_hook.get_or_create(create, json_config_path, create_if_not_exists)

    return get_hook
