"""Gradient tapes that notify a TapeRecorder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..backend import unconverted
from .recorder import TapeRecorder


class _Wrapped:
    """A mixin for the class of a wrapped tape."""

    tensortrial_recorder: TapeRecorder
    _quiet = False

    def __enter__(self) -> Any:
        self.tensortrial_recorder.entered()
        return super().__enter__()  # type: ignore[misc]

    def __exit__(self, *error: Any) -> Any:
        try:
            return super().__exit__(*error)  # type: ignore[misc]
        finally:
            self.tensortrial_recorder.exited()

    @unconverted
    def gradient(self, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        gradients = super().gradient(target, sources, *args, **kwargs)  # type: ignore[misc]
        if not self._quiet:
            self.tensortrial_recorder.computed(target, sources, gradients)
        return gradients

    @unconverted
    def jacobian(self, *args: Any, **kwargs: Any) -> Any:
        with self._quietly():
            return super().jacobian(*args, **kwargs)  # type: ignore[misc]

    @unconverted
    def batch_jacobian(self, *args: Any, **kwargs: Any) -> Any:
        with self._quietly():
            return super().batch_jacobian(*args, **kwargs)  # type: ignore[misc]

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        """Record no gradients inside the block: a Jacobian computes one for each row, and none belongs to a loss."""
        self._quiet = True
        try:
            yield
        finally:
            self._quiet = False


_classes: dict[type, type] = {}


def wrap(tape: Any, recorder: TapeRecorder) -> None:
    """Make a GradientTape notify this recorder, and no other one."""
    if not isinstance(tape, _Wrapped):
        tape.__class__ = _wrapped_class(type(tape))
    tape.tensortrial_recorder = recorder


def _wrapped_class(tape_class: type) -> type:
    if tape_class not in _classes:
        _classes[tape_class] = type(tape_class.__name__, (_Wrapped, tape_class), {})
    return _classes[tape_class]
