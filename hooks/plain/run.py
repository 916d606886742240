"""A run without a framework: the program itself says what is saved, and at which step.

import tensortrial

with tensortrial.Run("runs/x") as run:
    for step in range(100):
        run.log({"loss": 1 / (step + 1)}, step=step)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np

from tensortrial.config.collection import CollectionKeys
from tensortrial.errors import UnsupportedValue
from tensortrial.format.record import Step
from tensortrial.mode import ModeKeys

from ..core import current_hook
from ..core.base_hook import BaseHook, guarded
from ..core.options import Framework, HookOptions, accepts_fields_of
from ..core.rank import rank_of_process
from ..core.recorder import Recorder
from ..core.user_values import array_of

_FRAMEWORK = Framework(
    "none",
    {"numpy": np.__version__},
    builtin=[CollectionKeys.LOSSES, CollectionKeys.METRICS, CollectionKeys.SM_METRICS],
)


class Run(BaseHook):
    """A run of a program without a framework.

    What `log`, `save_scalar` and `save_tensor` pass is saved at the `step` that they name, or inside
    `with run.step():`. Outside of both it is saved at the open step, and a name that this step has already begins the
    next one, so that no value is lost.

    `help(Run.__init__)` lists the arguments, which are those of every hook. After construction no error of the run
    reaches the program: the first one is logged, and the run turns itself off (TENSORTRIAL_STRICT=1 raises it instead).

    Raises:
        ConfigurationError: An argument has a value that it cannot have.
        RunExists: out_dir holds a run already.
    """

    @accepts_fields_of(HookOptions)
    def __init__(self, options: HookOptions) -> None:
        self.recorder = Recorder(options, _FRAMEWORK, rank_of_process)
        # The names that were saved outside of `with run.step():`, and the step at which they were.
        self._names: set[str] = set()
        self._named_at: Step | None = None
        current_hook.made(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @guarded
    def log(self, values: Mapping[str, Any], *, step: int | None = None, mode: ModeKeys | str | None = None) -> None:
        """Save several numbers, each as `save_scalar` does.

        Args:
            values: Numbers, or arrays of one element, by their names.
            step: The number of a step in its mode, also of a past one. Default: the open step, or the next one if the
                open step has one of the names.
            mode: The mode that the step is counted in. Default: the current one.
        """
        if step is None and isinstance(values, Mapping):
            self._begin_if_repeated(values)
        super().log(values, step=step, mode=mode)

    @guarded
    def save_scalar(
        self,
        name: str,
        value: Any,
        sm_metric: bool = False,
        timestamp: float | None = None,
        *,
        step: int | None = None,
        mode: ModeKeys | str | None = None,
    ) -> None:
        """Save a number.

        Args:
            name: The name.
            value: A number, or an array of one element.
            sm_metric: Add it to the collection `sm_metrics`.
            timestamp: Seconds since 1970. Default: now.
            step: The number of a step in its mode, also of a past one. Default: the open step, or the next one if the
                open step has this name.
            mode: The mode that the step is counted in. Default: the current one.
        """
        if step is None:
            self._begin_if_repeated((name,))
        self.recorder.save_scalar(name, value, sm_metric, timestamp, step, mode)
        if step is None:
            self._note(name)

    @guarded
    def save_tensor(
        self,
        name: str,
        value: Any,
        collections_to_write: Iterable[str] | str = "default",
        *,
        step: int | None = None,
        mode: ModeKeys | str | None = None,
    ) -> None:
        """Save an array.

        Args:
            name: The name.
            value: An array, or a (nested) list of numbers. It is copied.
            collections_to_write: The names of the collections that it joins. Their ReductionConfig decides in what form
                it is saved.
            step: The number of a step in its mode, also of a past one. Default: the open step, or the next one if the
                open step has this name.
            mode: The mode that the step is counted in. Default: the current one.
        """
        try:
            array = array_of(value)
        except UnsupportedValue as exc:
            self.recorder.refuse(name, exc)
            return
        if step is None:
            self._begin_if_repeated((name,))
        self.recorder.save_tensor(name, array, collections_to_write, step=step, mode=mode)
        if step is None:
            self._note(name)

    def _begin_if_repeated(self, names: Iterable[Any]) -> None:
        """End the open step if it has one of the names already, unless the caller has begun it."""
        clock = self.recorder.clock
        may_repeat = clock.step is not None and clock.step is self._named_at and not clock.held
        if may_repeat and any(isinstance(name, str) and name in self._names for name in names):
            self.recorder.end_step()

    def _note(self, name: Any) -> None:
        """Remember that the open step has a name."""
        if self.recorder.step is not self._named_at:
            self._named_at = self.recorder.step
            self._names.clear()
        if isinstance(name, str):
            self._names.add(name)
