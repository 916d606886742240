"""The layers that a traced step of `fit` trains: all that were not frozen during tracing."""

from __future__ import annotations

from typing import Any

from .names import weights_of

_FLAG = "_trainable"


class TracedFlags:
    """A context manager that restores the `trainable` flags that a model's layers and variables had at construction.

    Keras continues to train a layer that a callback freezes, until it traces a new step. So the hook's trace must, too.
    """

    def __init__(self, model: Any) -> None:
        parts = [*model._flatten_layers(), *weights_of(model)]
        self._flags = [(part, vars(part)[_FLAG]) for part in parts if _FLAG in vars(part)]
        self._replaced: list[tuple[Any, Any]] = []

    def __enter__(self) -> None:
        for part, flag in self._flags:
            now = vars(part).get(_FLAG)
            if now is not flag:
                object.__setattr__(part, _FLAG, flag)
                self._replaced.append((part, now))

    def __exit__(self, *exc_info: object) -> None:
        for part, now in self._replaced:
            object.__setattr__(part, _FLAG, now)
        self._replaced.clear()
