"""What is registered with PyTorch: callbacks that tell a hook what a model does.

A copied, pickled or saved model takes no hook along, because the copy is another model, which must not write into the
run of the first. In the place of each tap it gets a function of the standard library that does nothing, so that it can
be loaded where this package is not installed.

Activation checkpointing runs forwards once more inside backward; they are no new values, and taps pass over them. Nor
is there a value to be had while torch.jit traces a module, or inside torch.func's transforms.

Where a tap is a part of what torch.compile compiles, `__call__` is run by the compiler, once for each graph, and leaves
an operator in it (see `torch_graphs`), which calls `hear`.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import torch
from torch.compiler import is_compiling, is_exporting

from . import compile as torch_graphs
from .arrays import tensors_in
from .compile import Keys, emit, is_wanted, switch, tell
from .names import Root

logger = logging.getLogger("tensortrial.hooks")

# A module that runs more often than this in one step is asked for as if it did not.
_MOST_NUMBERS = 32


class Listener(Protocol):
    """What a hook does about it."""

    @property
    def saving(self) -> bool:
        """Whether anything is due: if not, only `begin_step` is called."""

    def may_save(self, names: list[str]) -> bool:
        """Whether a tensor of one of these names may be saved at some step."""

    def begin_step(self, root: Root, module: torch.nn.Module | None) -> None:
        """A registered model is about to run. It is passed where Python calls it, not compiled code."""

    def values_of(self, path: str, direction: str, value: Any) -> None:
        """The module at `path` is about to run on this (`input`), or gave it (`output`)."""

    def value_of(self, path: str, direction: str, key: str | None, tensor: torch.Tensor) -> None:
        """One tensor of it."""

    def gradient_of(self, tap: Gradient, gradient: torch.Tensor | None, version: int) -> None:
        """The gradient of a parameter is there. The version grows when the parameter is changed in place."""


class _Tap:
    __slots__ = ("__weakref__", "_number", "_what", "listener")

    def __init__(self, listener: Listener, what: Any) -> None:
        self.listener, self._what = listener, what
        self._number = torch_graphs.enlist(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., None]:
        return contextlib.nullcontext().__exit__

    def __reduce__(self) -> tuple[Any, ...]:
        # It takes anything, gives None, and can be pickled.
        return getattr, (contextlib.nullcontext(), "__exit__")

    def stands_for(self, kind: type[torch.nn.Module] | None, direction: str) -> bool:
        return False

    def may_want(self, keys: Keys) -> bool:
        return False

    def hear(self, tensor: torch.Tensor, key: str | None) -> None:
        raise NotImplementedError


class BeginStep(_Tap):
    """Before a root's forward."""

    __slots__ = ()

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        if is_compiling():
            if not is_exporting():
                emit(self._number, self._number, None)
        elif not _passed_over():
            self.listener.begin_step(self._what, module)

    def hear(self, tensor: torch.Tensor, key: str | None) -> None:
        if not _in_backward():
            self._what.inside = True
            was_on = switch.on
            self.listener.begin_step(self._what, None)
            if self.listener.saving and not was_on:
                torch_graphs.missed()


class _ModuleTap(_Tap):
    __slots__ = ("_module", "container")
    direction: ClassVar[str]

    def __init__(self, listener: Listener, what: str, module: torch.nn.Module) -> None:
        super().__init__(listener, what)
        self._module = weakref.ref(module)
        self.container: torch.nn.Module | None = None
        """Kept as long as this is."""

    def stands_for(self, kind: type[torch.nn.Module] | None, direction: str) -> bool:
        return direction == self.direction and type(self._module()) is kind

    def may_want(self, keys: Keys) -> bool:
        return self.listener.may_save(
            [f"{self._what}_{self.direction}_{label}" for key in keys for label in _labels(key)]
        )

    def hear(self, tensor: torch.Tensor, key: str | None) -> None:
        if self.listener.saving and not _in_backward():
            self.listener.value_of(self._what, self.direction, key, tensor)

    def _put_into_graph(self, module: torch.nn.Module, value: Any) -> None:
        found = list(tensors_in(value))
        keys = [key for key, _ in found]
        if not is_exporting() and is_wanted(switch.epoch, type(module), self.direction, *keys) and switch.on:
            if torch._C._are_functorch_transforms_active():
                tell("inside vmap or grad")
            else:
                for key, tensor in found:
                    emit(self._number, tensor, key)


class Inputs(_ModuleTap):
    """Before a module's forward."""

    __slots__ = ()
    direction = "input"

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if is_compiling():
            self._put_into_graph(module, args)
            if kwargs:
                self._put_into_graph(module, kwargs)
        elif self.listener.saving and not _passed_over():
            self.listener.values_of(self._what, "input", args)
            if kwargs:
                self.listener.values_of(self._what, "input", kwargs)


class Outputs(_ModuleTap):
    """After a module's forward."""

    __slots__ = ()
    direction = "output"

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if is_compiling():
            self._put_into_graph(module, output)
        elif self.listener.saving and not _passed_over():
            self.listener.values_of(self._what, "output", output)


class Gradient(_Tap):
    """After the gradient of a parameter was added up."""

    __slots__ = ("_step", "_version", "called", "root", "updated")

    def __init__(self, listener: Listener, what: str, root: Root) -> None:
        super().__init__(listener, what)
        self.root = root
        self._step: object = None
        self._version = -1
        self.updated = False
        """Set before an optimizer's step."""
        self.called = False
        """Set by a backward, so that it is known that autograd has this callback."""

    @property
    def name(self) -> str:
        return str(self._what)

    def follows_update(self, step: object, version: int) -> bool:
        """Return whether the parameter was updated in this step after its gradient was there before."""
        if step is not self._step:
            self._step, self._version, self.updated = step, version, False
        return self.updated or version != self._version

    def __call__(self, parameter: torch.Tensor) -> None:
        if is_compiling():  # the compiler has the backward too
            gradient = parameter.grad
            if gradient is not None and is_wanted(switch.epoch, None, "gradient", None) and switch.on:
                emit(self._number, gradient, None)
            return
        self.called = True
        if self.listener.saving:
            self.listener.gradient_of(self, parameter.grad, parameter._version)

    def stands_for(self, kind: type[torch.nn.Module] | None, direction: str) -> bool:
        return kind is None

    def may_want(self, keys: Keys) -> bool:
        return self.listener.may_save([self._what])

    def hear(self, tensor: torch.Tensor, key: str | None) -> None:
        if self.listener.saving:
            self.listener.gradient_of(self, tensor, self._version)


def is_tap(callback: object) -> bool:
    """Return whether a callback is one of this package's."""
    return isinstance(callback, _Tap)


for _each in (BeginStep, Inputs, Outputs, Gradient):
    torch_graphs.run_uncompiled(_each.__call__.__code__)


def _labels(key: str | None) -> list[object]:
    return list(range(_MOST_NUMBERS)) if key is None else [key, f"{key}_1"]


def _in_backward() -> bool:
    # torch's own checkpointing asks the same way.
    return bool(torch._C._current_graph_task_id() != -1)


def _passed_over() -> bool:
    if torch._C._are_functorch_transforms_active():
        _warn_of_transforms()
        return True
    return _in_backward() or torch._C._get_tracing_state() is not None


@functools.cache
def _warn_of_transforms() -> None:
    logger.warning(
        "what a model does inside torch.func.vmap, torch.func.grad and their like is not captured, and begins no step"
    )
