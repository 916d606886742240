"""The smallest binding: a hook that captures the arrays that a job passes to it, and a module's public names.

Its tests show what is the same for every hook, without a framework's import and training.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tensortrial.config.collection import Collection, CollectionKeys
from tensortrial.dtypes import Array
from tensortrial.hooks.core import current_hook, shared_names
from tensortrial.hooks.core.base_hook import BaseHook
from tensortrial.hooks.core.configuration.options import Framework, HookOptions, accepts_fields_of
from tensortrial.hooks.core.process.rank import rank_of_process
from tensortrial.hooks.core.recorder import Recorder, guarded
from tensortrial.hooks.core.shared_names import *  # noqa: F403

__all__ = ["Collection", "Hook", "get_hook"]
__all__ += shared_names.__all__

LOSS, WEIGHT, GRADIENT = "loss", "weight", "gradient/weight"

_FRAMEWORK = Framework(
    "arrays",
    {"numpy": np.__version__},
    builtin=[
        CollectionKeys.WEIGHTS,
        CollectionKeys.BIASES,
        CollectionKeys.GRADIENTS,
        CollectionKeys.LOSSES,
        CollectionKeys.METRICS,
        CollectionKeys.SM_METRICS,
    ],
    always_saved=[CollectionKeys.LOSSES],
)


class Hook(BaseHook):
    """A hook that saves a loss, a weight and its gradient, as the job passes them step by step."""

    @accepts_fields_of(HookOptions)
    def __init__(self, options: HookOptions) -> None:
        self.recorder = Recorder(options, _FRAMEWORK, rank_of_process)
        self.recorder.collections.require(CollectionKeys.LOSSES).add_tensor_names([LOSS])
        self.recorder.collections.require(CollectionKeys.WEIGHTS).add_tensor_names([WEIGHT])
        self.recorder.collections.add_gradient(GRADIENT, WEIGHT)
        current_hook.made(self)

    @guarded
    def capture(self, values: Mapping[str, Array]) -> None:
        """Begin a step, and record the values that are due at it."""
        if not self.recorder.active:
            return
        self.recorder.begin_step()
        if self.recorder.saving:
            for name, value in values.items():
                plan = self.recorder.planner.plan(name)
                if plan is not None:
                    self.recorder.record(plan, value)


def get_hook(
    hook_type: str | None = None, json_config_path: str | None = None, create_if_not_exists: bool = False
) -> Any:
    """Return the current hook, as a framework's module does."""
    return current_hook.get_or_create(Hook.create_from_json_file, json_config_path, create_if_not_exists)
