"""The callbacks that a hook registers with PyTorch: forward pre-hooks, forward hooks and post-accumulate-grad hooks.

Callbacks ignore forwards without new values: those that activation checkpointing repeats inside backward, those that
torch.jit or make_fx traces, and those inside torch.func's transforms.

In code that torch.compile compiles, the compiler runs a callback's `__call__` once for each graph. This makes the graph
pass its tensors to `receive` when it runs (see `compile`).
"""

from __future__ import annotations

import functools
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import torch
from torch.compiler import is_compiling, is_exporting

from ..core.callbacks import UncopiedCallback
from ..core.log import logger
from . import compile as compiled
from .arrays import tensors_in
from .compile import Keys, emit, emit_begin, is_wanted, switch, warn
from .names import Root

# If a module runs several times in a step, the names of its tensors have a number. Compilation plans for numbers below
# this; larger ones are planned when they occur.
_MAX_OCCURRENCES = 32


class Receiver(Protocol):
    """The object that callbacks notify: the capture of a hook."""

    @property
    def saving(self) -> bool:
        """True if anything is due at the open step. If not, only `begin_root` is called."""

    @property
    def saving_tensors(self) -> bool:
        """True if more than losses is due. If not, only callbacks of models and losses are called."""

    def may_save(self, names: list[str]) -> bool:
        """Return whether a tensor of one of these names may be saved at some step."""

    def finds_loss(self, path: str, direction: str, key: str | None) -> bool:
        """Return whether an output of compiled code is a loss that is saved."""

    def begin_root(self, root: Root, module: torch.nn.Module | None) -> None:
        """Begin a step, because a registered model is about to run. Compiled code passes no module."""

    def capture_values(self, path: str, direction: str, value: Any) -> None:
        """Capture the inputs (direction "input") or outputs ("output") of the module at `path`."""

    def capture_value(self, path: str, direction: str, key: str | None, tensor: torch.Tensor) -> None:
        """Capture one tensor of a module's inputs or outputs."""

    def capture_gradient(self, callback: GradientCallback, gradient: torch.Tensor | None, version: int) -> None:
        """Capture the gradient of a parameter. The version grows when the parameter is changed in place."""


class EagerCallback(UncopiedCallback):
    """A callback that calls a function with the module or optimizer, and is no part of compiled code."""

    __slots__ = ("_then",)

    def __init__(self, then: Callable[[Any], None]) -> None:
        self._then = then

    def __call__(self, subject: Any, *_: Any) -> None:
        if not is_compiling():
            self._then(subject)


class _Callback(UncopiedCallback, ABC):
    """A callback that may also be a part of compiled code."""

    __slots__ = ("__weakref__", "_number", "_subject", "receiver")

    def __init__(self, receiver: Receiver, subject: Any) -> None:
        self.receiver, self._subject = receiver, subject
        self._number = compiled.register(self)

    def captures(self, kind: type[torch.nn.Module] | None, direction: str) -> bool:
        return False

    def may_save(self, keys: Keys) -> bool:
        return False

    @abstractmethod
    def receive(self, tensor: torch.Tensor, key: str | None) -> None: ...


class BeginStep(_Callback):
    """The forward pre-hook of a registered model."""

    __slots__ = ()

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        if is_compiling():
            if not is_exporting():
                emit_begin(self._number)
        elif not is_ignored():
            self.receiver.begin_root(self._subject, module)

    def receive(self, tensor: torch.Tensor, key: str | None) -> None:
        if not _in_backward():
            self._subject.in_compiled_code = True
            was_on = switch.on
            self.receiver.begin_root(self._subject, None)
            if self.receiver.saving_tensors and not was_on:
                compiled.warn_of_unplanned_step()


class _ModuleCallback(_Callback):
    __slots__ = ("_module", "container")
    direction: ClassVar[str]

    def __init__(self, receiver: Receiver, subject: str, module: torch.nn.Module) -> None:
        super().__init__(receiver, subject)
        self._module = weakref.ref(module)
        self.container: torch.nn.Module | None = None
        """A module to keep alive as long as this callback."""

    def captures(self, kind: type[torch.nn.Module] | None, direction: str) -> bool:
        return direction == self.direction and type(self._module()) is kind

    def may_save(self, keys: Keys) -> bool:
        if any(self.receiver.finds_loss(self._subject, self.direction, key) for key in keys):
            return True
        return self.receiver.may_save(
            [f"{self._subject}_{self.direction}_{label}" for key in keys for label in _labels(key)]
        )

    def receive(self, tensor: torch.Tensor, key: str | None) -> None:
        if self.receiver.saving and not _in_backward():
            self.receiver.capture_value(self._subject, self.direction, key, tensor)

    def _put_into_graph(self, module: torch.nn.Module, value: Any) -> None:
        found = list(tensors_in(value))
        keys = [key for key, _ in found]
        if not is_exporting() and is_wanted(switch.epoch, type(module), self.direction, *keys) and switch.on:
            if torch._C._are_functorch_transforms_active():
                warn("inside vmap or grad")
            else:
                for key, tensor in found:
                    emit(self._number, tensor, key)


class Inputs(_ModuleCallback):
    """The forward pre-hook that captures a module's inputs."""

    __slots__ = ()
    direction = "input"

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        # There are no `kwargs` if the callback was removed while torch called the module's callbacks.
        if is_compiling():
            self._put_into_graph(module, args)
            if kwargs:
                self._put_into_graph(module, kwargs)
        elif self.receiver.saving_tensors and not is_ignored():
            self.receiver.capture_values(self._subject, "input", args)
            if kwargs:
                self.receiver.capture_values(self._subject, "input", kwargs)


class Outputs(_ModuleCallback):
    """The forward hook that captures a module's outputs."""

    __slots__ = ("of_losses",)
    direction = "output"

    def __init__(self, receiver: Receiver, subject: str, module: torch.nn.Module, of_losses: bool) -> None:
        super().__init__(receiver, subject, module)
        self.of_losses = of_losses
        """True if a loss may be among the outputs."""

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if is_compiling():
            self._put_into_graph(module, output)
        elif (self.receiver.saving if self.of_losses else self.receiver.saving_tensors) and not is_ignored():
            self.receiver.capture_values(self._subject, "output", output)


class GradientCallback(_Callback):
    """The post-accumulate-grad hook of a parameter."""

    __slots__ = ("_step", "_version", "called", "root", "updated")

    def __init__(self, receiver: Receiver, subject: str, root: Root) -> None:
        super().__init__(receiver, subject)
        self.root = root
        self._step: object = None
        self._version = -1
        self.updated = False
        """Set before an optimizer's step."""
        self.called = False
        """Set by a backward, which shows that autograd has this callback."""

    @property
    def name(self) -> str:
        return str(self._subject)

    def follows_update(self, step: object, version: int) -> bool:
        """Return whether the parameter was updated in this step after an earlier gradient of the step."""
        if step is not self._step:
            self._step, self._version, self.updated = step, version, False
        return self.updated or version != self._version

    def __call__(self, parameter: torch.Tensor) -> None:
        if is_compiling():  # the compiler also compiles the backward
            gradient = parameter.grad
            if gradient is not None and is_wanted(switch.epoch, None, "gradient", None) and switch.on:
                emit(self._number, gradient, None)
            return
        self.called = True
        if self.receiver.saving_tensors:
            self.receiver.capture_gradient(self, parameter.grad, parameter._version)

    def captures(self, kind: type[torch.nn.Module] | None, direction: str) -> bool:
        return kind is None

    def may_save(self, keys: Keys) -> bool:
        return self.receiver.may_save([self._subject])

    def receive(self, tensor: torch.Tensor, key: str | None) -> None:
        if self.receiver.saving_tensors:
            self.receiver.capture_gradient(self, tensor, self._version)


def call_before_update(
    optimizer: torch.optim.Optimizer, args: Any, kwargs: Any, then: Callable[[torch.optim.Optimizer], None]
) -> Any:
    """Call `then` with an optimizer before it updates its parameters.

    `args` and `kwargs` are the arguments of the optimizer's step, with the optimizer. Return the changed ones, as a
    step pre-hook does; None if they are the same.
    """
    closure = args[1] if len(args) > 1 else kwargs.get("closure")
    if not callable(closure):
        then(optimizer)
        return None
    reference = weakref.ref(optimizer)

    def call() -> Any:
        result = closure()
        if (living := reference()) is not None:
            then(living)
        return result

    return ((args[0], call, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "closure": call})


def is_own_callback(callback: object) -> bool:
    """Return whether a callback belongs to this package."""
    return isinstance(callback, _Callback)


for _each in (BeginStep, Inputs, Outputs, GradientCallback):
    compiled.leave_uncompiled(_each.__call__.__code__)


def _labels(key: str | None) -> list[object]:
    return list(range(_MAX_OCCURRENCES)) if key is None else [key, f"{key}_1"]


def _in_backward() -> bool:
    # torch's checkpointing uses the same test.
    return bool(torch._C._current_graph_task_id() != -1)


def is_ignored() -> bool:
    """Return whether a forward produces no values to capture."""
    if torch._C._are_functorch_transforms_active():
        _warn_of_transforms()
        return True
    if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None:  # make_fx
        return True
    return torch._C._current_graph_task_id() != -1 or torch._C._get_tracing_state() is not None


@functools.cache
def _warn_of_transforms() -> None:
    logger.warning(
        "forwards inside torch.func.vmap, torch.func.grad and similar functions are not captured, and begin no step"
    )
