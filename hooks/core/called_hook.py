"""The base of hooks without callbacks: the program itself passes what is saved, step after step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from tensortrial.format.record import Step
from tensortrial.mode import ModeKeys

from .base_hook import BaseHook, accepts_documented_names, guarded


class CalledHook(BaseHook):
    """A hook whose steps are what the program passes to it.

    Outside of `with hook.step():` and without a number of the step, a name that the open step has already begins the
    next one, so that no value is lost.
    """

    # The names that were saved outside of `with hook.step():`, and the step at which they were.
    _names: set[str] | frozenset[str] = frozenset()
    _named_at: Step | None = None

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
        self._save_scalar(name, value, sm_metric, timestamp, step, mode)
        if step is None:
            self._note(name)

    @accepts_documented_names
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
        if step is None:
            self._begin_if_repeated((name,))
        self._save_tensor(name, value, collections_to_write, step, mode)
        if step is None:
            self._note(name)

    def _save_scalar(
        self, name: str, value: Any, sm_metric: bool, timestamp: float | None, step: Any, mode: Any
    ) -> None:
        self.recorder.save_scalar(name, value, sm_metric, timestamp, step, mode)

    def _begin_if_repeated(self, names: Iterable[Any]) -> None:
        """End the open step if it has one of the names already, unless the caller has begun it."""
        clock = self.recorder.clock
        may_repeat = clock.step is not None and clock.step is self._named_at and not clock.held
        if may_repeat and any(isinstance(name, str) and name in self._names for name in names):
            self.recorder.end_step()

    def _note(self, name: Any) -> None:
        """Remember that the open step has a name."""
        step = self.recorder.clock.step
        if step is not self._named_at:
            self._named_at, self._names = step, set()
        if isinstance(name, str) and isinstance(self._names, set):
            self._names.add(name)
