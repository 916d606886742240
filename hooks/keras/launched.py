"""The callback for the first trained model of an unmodified script: `python -m tensortrial run train.py`."""

from __future__ import annotations

import functools
import inspect
import weakref
from typing import Any

import keras

from ..core.log import logger
from ..launch.launch import Launch, active_launch, has_own_hook


def activate() -> None:
    """Pass a hook to `fit`, `evaluate` and `predict` of the first model that trains."""
    launch = active_launch()
    if launch is not None:
        launched = _LaunchedModel(launch)
        for name in ("fit", "evaluate", "predict"):
            launched.wrap(name)


class _LaunchedModel:
    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._hook: Any = None
        self._model: weakref.ref[Any] | None = None

    def wrap(self, name: str) -> None:
        """Replace a method of `keras.Model` by one that also passes the hook."""
        original = getattr(keras.Model, name)
        signature = inspect.signature(original)

        @functools.wraps(original)
        def call(model: Any, /, *args: Any, **kwargs: Any) -> Any:
            try:
                bound = signature.bind(model, *args, **kwargs)
            except TypeError:
                return original(model, *args, **kwargs)  # let the method raise its error
            given = bound.arguments.get("callbacks")
            hook = self._hook_for(model, name == "fit", given)
            if hook is None:
                return original(model, *args, **kwargs)
            if isinstance(given, keras.callbacks.CallbackList):
                given.append(hook)
            else:
                own = [] if given is None else list(given) if isinstance(given, (list, tuple)) else [given]
                bound.arguments["callbacks"] = [*own, hook]
            return original(*bound.args, **bound.kwargs)

        setattr(keras.Model, name, call)

    def _hook_for(self, model: Any, begins: bool, callbacks: Any) -> Any:
        """Return the hook to pass; None if there is nothing to save, or the script passes one."""
        try:
            if self._model is None and begins and not has_own_hook(self._hook):
                from .hook import KerasHook

                self._model = weakref.ref(model)
                if not _has_hook(callbacks, KerasHook):
                    self._hook = self._launch.make_hook(KerasHook)
            if self._hook is None or self._model is None or self._model() is not model or has_own_hook(self._hook):
                return None
            return None if _has_hook(callbacks, type(self._hook)) else self._hook
        except Exception:  # an error here must not end the training
            logger.exception("nothing is saved of this training")
            self._hook = None
            return None


def _has_hook(callbacks: Any, kind: type[Any]) -> bool:
    found = getattr(callbacks, "callbacks", callbacks)
    return any(isinstance(each, kind) for each in (found if isinstance(found, (list, tuple)) else [found]))
