"""The hyperparameters and updates of wrapped optimizers in a training loop with a GradientTape.

The loop runs eagerly or inside a `tf.function`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tensortrial.config.collection import CollectionKeys

from ...core.recorder import Recorder, guarded
from ..backend import graph, unconverted
from ..graph_callback import GraphCallback
from ..hyperparameters import settings_of
from ..updates import DUE_WITH, record_update
from .recorder import TapeOwner

_GRADIENTS = ("grads", "grads_and_vars")


class TapeUpdates:
    """The updates of variables by wrapped optimizers. Variables are copied only at steps at which updates are due."""

    def __init__(self, hook: TapeOwner) -> None:
        self._hook = hook
        self.recorder = hook.recorder
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    def follow(self, optimizer: Any) -> None:
        """Record the hyperparameters and updates of each use of an optimizer, until `forget` is called."""
        name = "apply" if hasattr(optimizer, "apply") else "apply_gradients"
        apply = getattr(optimizer, name)

        @unconverted
        def applied(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = _readable_again(args, kwargs)
            self._check_tape()
            self._record_hyperparameters(optimizer)
            records: list[Callable[[], None]] = []
            self._begin(_variables_of(optimizer, name, args, kwargs), records)
            result = apply(*args, **kwargs)
            for record in records:
                record()
            return result

        self._replaced.append((optimizer, name, vars(optimizer).get(name), applied))
        object.__setattr__(optimizer, name, applied)

    def forget(self) -> None:
        """Restore the methods that the optimizers had."""
        for optimizer, name, before, applied in self._replaced:
            if vars(optimizer).get(name) is applied:
                object.__delattr__(optimizer, name)
                if before is not None:  # somebody else's replacement
                    object.__setattr__(optimizer, name, before)
        self._replaced.clear()

    @guarded
    def _check_tape(self) -> None:
        """Warn if the optimizer is used outside of `fit`, and no tape was wrapped before."""
        if self._hook.tape_seen or self._hook.is_fitting or not self.recorder.active:
            return
        if CollectionKeys.GRADIENTS in self.recorder.collections.saved_names:
            self.recorder.failures.warn_once(
                "no gradients are saved, because the optimizer is used in a training loop whose tape the hook does not "
                "know; where the tape is created, write: with hook.wrap_tape(tf.GradientTape()) as tape:"
            )

    @guarded
    def _record_hyperparameters(self, optimizer: Any) -> None:
        """Record the hyperparameters of an update. A function that is traced now keeps those that are not variables."""
        if CollectionKeys.HYPERPARAMETERS not in self.recorder.collections.saved_names:
            return
        callback = self._hook.tape_callback()
        if callback is None or not callback.may_be_due:
            return
        recorder = callback.recorder
        if graph() is None and CollectionKeys.HYPERPARAMETERS not in recorder.planner.due:
            return
        found = next(each for own, each in settings_of(self._hook.tape_optimizers()) if own is optimizer)

        def save(numbers: Mapping[str, Any]) -> None:
            if CollectionKeys.HYPERPARAMETERS in recorder.planner.due:
                recorder.record_numbers(tuple(numbers), [float(each) for each in numbers.values()])

        callback.call_if_due(save, found)

    @guarded
    def _begin(self, variables: Iterable[Any], records: list[Callable[[], None]]) -> None:
        """Copy the variables whose update may be due, and append functions that record the updates."""
        if not DUE_WITH.intersection(self.recorder.collections.saved_names):
            return
        callback = self._hook.tape_callback()
        if callback is None or not callback.may_be_due:
            return
        named = {self._hook.tape_names.trained(variable).name: variable for variable in variables}
        named = {name: variable for name, variable in named.items() if self._may_save(callback.recorder, name)}
        if named:
            befores = callback.copies_if_due(named)
            records.append(lambda: self._record(callback, named, befores))

    def _may_save(self, recorder: Recorder, name: str) -> bool:
        if graph() is None:
            return bool(recorder.planner.due & DUE_WITH) and recorder.planner.plan(f"update/{name}") is not None
        return recorder.may_save([f"update/{name}"])

    @guarded
    def _record(self, callback: GraphCallback, variables: Mapping[str, Any], befores: Mapping[str, Any]) -> None:
        """Record the updates now, or at each execution of the graph that is being built."""
        recorder = callback.recorder

        def save(arrays: Mapping[str, Any]) -> None:
            if recorder.planner.due & DUE_WITH:
                for name in variables:
                    record_update(recorder, name, arrays[f"before {name}"], arrays[name])

        callback.call_if_due(save, {**variables, **{f"before {name}": value for name, value in befores.items()}})


def _readable_again(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with the gradients as a list, because a zip can be read only once."""
    if args:
        return (list(args[0]), *args[1:]), kwargs
    return args, {key: list(value) if key in _GRADIENTS else value for key, value in kwargs.items()}


def _variables_of(optimizer: Any, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the variables that a call of an optimizer changes."""
    gradients = args[0] if args else next((kwargs[key] for key in _GRADIENTS if key in kwargs), [])
    if method == "apply_gradients":
        return [variable for gradient, variable in gradients if gradient is not None]
    passed = args[1] if len(args) > 1 else kwargs.get("trainable_variables")
    variables = getattr(optimizer, "_trainable_variables", ()) if passed is None else passed
    return [variable for gradient, variable in zip(gradients, variables, strict=False) if gradient is not None]
