"""The registered optimizers of a hook, and the callbacks of their steps.

A hook has only weak references to optimizers. Their callbacks refer to the hook until it is closed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Protocol

import torch
from torch.compiler import is_compiling

from tensortrial.errors import ConfigurationError

from ..core.callbacks import UncopiedCallback
from ..core.failures import Failures
from ..library.identity import IdentityMap
from ..library.unique_names import take_name
from .callbacks import EagerCallback, call_before_update
from .gradients import divided, parameters_of

# The maximum nesting of optimizer wrappers; also stops a wrapper that contains itself.
_MOST_WRAPPERS = 8

# The attributes in which an optimizer keeps its callbacks.
_BEFORE, _AFTER = "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"


class Receiver(Protocol):
    """The object that the callbacks of optimizers notify: the capture."""

    def begin_update(self, name: str, optimizer: torch.optim.Optimizer) -> None:
        """Capture the hyperparameters and gradients that an optimizer is about to use, if any are due."""

    def end_update(self, optimizer: torch.optim.Optimizer) -> None:
        """Capture the changes that an update made, if they are due."""


class Optimizers:
    """Registered optimizers, with their names."""

    def __init__(self, receiver: Receiver, failures: Failures) -> None:
        self._receiver, self._failures = receiver, failures
        self._handles = IdentityMap[torch.optim.Optimizer, Any]()
        self._names: set[str] = set()

    def with_callbacks(self, optimizer: torch.optim.Optimizer) -> list[torch.optim.Optimizer]:
        """Return the optimizer or, if its steps call no callbacks, the optimizers in its attributes.

        torch calls no callbacks for a class that does not call torch's constructor. Libraries wrap optimizers by such
        classes. If no wrapped optimizer is found, a warning is logged.
        """
        found = [optimizer]
        for each in found:  # the list grows during the loop
            if not hasattr(each, _BEFORE):
                inner = [part for value in vars(each).values() for part in _parts(value)]
                known = set(map(id, found))
                found += [part for part in inner if isinstance(part, torch.optim.Optimizer) and id(part) not in known]
        seen = [each for each in found if hasattr(each, _BEFORE)]
        if not seen:
            name = type(optimizer).__name__
            self._failures.warn_once(
                f"the updates by {name} are not seen, because its class does not call torch.optim.Optimizer.__init__: "
                "its hyperparameters, and what its steps use and change, are not saved"
            )
        return seen

    def register(self, optimizer: torch.optim.Optimizer) -> str | None:
        """Register an optimizer. Return its name; None if it was registered before."""
        if optimizer in self._handles:
            return None
        name = take_name(self._names, type(optimizer).__name__)
        _remove_silenced(optimizer)
        before, after = BeforeStep(self._receiver, name), EagerCallback(self._receiver.end_update)
        self._handles[optimizer] = [optimizer.register_step_pre_hook(before), optimizer.register_step_post_hook(after)]
        return name

    def __iter__(self) -> Iterator[torch.optim.Optimizer]:
        """Return an iterator over the optimizers whose steps call callbacks."""
        return iter(list(self._handles))

    def start_again(self) -> None:
        """Let optimizers that a repeated training makes again take the names of the registered ones."""
        self._names.clear()

    def release(self) -> None:
        """Disable every callback of the optimizers, and forget the optimizers."""
        for handles in list(self._handles.values()):
            for handle in handles:
                silence(handle)
        self._handles.clear()

    def warn_if_none(self) -> None:
        """Log, once, that no optimizer is registered."""
        if not self._names:
            self._failures.warn_once(
                'gradients="optimizer" saves no gradients before hook.register_optimizer(optimizer) is called'
            )


class BeforeStep(UncopiedCallback):
    """The step pre-hook of an optimizer."""

    __slots__ = ("_name", "_receiver")

    def __init__(self, receiver: Receiver, name: str) -> None:
        self._receiver, self._name = receiver, name

    def __call__(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        if is_compiling():
            return None
        return call_before_update(optimizer, args, kwargs, partial(self._receiver.begin_update, self._name))


def silence(handle: Any) -> None:
    """Replace a callback of an optimizer's step by one that does nothing.

    It keeps its place, because the optimizer may be iterating over its callbacks, in this or another thread.
    """
    callbacks = handle.hooks_dict_ref()
    if callbacks is not None and handle.id in callbacks:
        callbacks[handle.id] = _silenced


def _silenced(*_: Any) -> None:
    pass


def _remove_silenced(optimizer: torch.optim.Optimizer) -> None:
    for kind in (_BEFORE, _AFTER):
        callbacks = getattr(optimizer, kind)
        for key in [key for key, callback in callbacks.items() if callback is _silenced]:
            del callbacks[key]


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, (list, tuple)) else [value]


def innermost(optimizer: Any) -> torch.optim.Optimizer:
    """Return the innermost optimizer, without the wrappers of Accelerate, Lightning and others.

    Raises:
        ConfigurationError: It is not a torch.optim.Optimizer.
    """
    found = optimizer
    for _ in range(_MOST_WRAPPERS):
        inner = getattr(found, "optimizer", None)
        if not isinstance(inner, torch.optim.Optimizer):
            break
        found = inner
    if not isinstance(found, torch.optim.Optimizer):
        raise ConfigurationError(f"register_optimizer takes a torch.optim.Optimizer, got a {type(optimizer).__name__}")
    return found


def gradients_seen(optimizer: torch.optim.Optimizer) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the parameters of an optimizer that have a gradient, with the gradient that the update uses.

    A fused optimizer under a GradScaler divides by the scale inside its kernel.
    """
    scale = getattr(optimizer, "grad_scale", None)
    for parameter in parameters_of(optimizer):
        gradient = parameter.grad
        if gradient is not None:
            yield parameter, divided(gradient, scale) if isinstance(scale, torch.Tensor) else gradient


def groups_of(optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Any]]:
    """Return the hyperparameters of each group of an optimizer that JSON can hold, by `group_0` and so on."""
    return {
        f"group_{number}": {key: value for key, value in group.items() if key != "params" and _is_plain(value)}
        for number, group in enumerate(optimizer.param_groups)
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value))


def hyperparameters_of(name: str, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, float | torch.Tensor]]:
    """Yield the numbers among the hyperparameters of an optimizer's groups, with their names."""
    for number, group in enumerate(optimizer.param_groups):
        for key, value in group.items():
            if key == "params":
                continue
            several = isinstance(value, (tuple, list))
            for position, each in enumerate(value if several else [value]):
                label = f"{key}_{position}" if several else key
                is_number = isinstance(each, (int, float)) and not isinstance(each, bool)
                if is_number or (isinstance(each, torch.Tensor) and each.numel() == 1):
                    yield f"hyperparameters/{name}/group_{number}/{label}", each
