"""The base of hooks without callbacks: the program itself passes the values of each step."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from tensortrial.format.record import Step

from .base_hook import BaseHook


class CalledHook(BaseHook):
    """A hook without callbacks, to which the program passes the values of each step.

    Without `with hook.step():` and without a step number, saving a name that the open step already has begins the next
    step, so that no value is lost.
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

    def _begin_call(self, names: Iterable[Any]) -> None:
        """End the open step if it has one of the names already, unless the caller has begun it."""
        clock = self.recorder.clock
        may_repeat = clock.step is not None and clock.step is self._named_at and not clock.held
        if may_repeat and any(isinstance(name, str) and name in self._names for name in names):
            self.recorder.end_step()

    def _end_call(self, names: Iterable[Any]) -> None:
        """Remember that the open step has these names."""
        step = self.recorder.clock.step
        if step is not self._named_at:
            self._named_at, self._names = step, set()
        if isinstance(self._names, set):
            self._names.update(name for name in names if isinstance(name, str))
