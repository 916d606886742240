"""What is registered with PyTorch: callbacks that tell a hook what a model does.

A copied, pickled or saved model takes no hook along, because the copy is another model, which must not write into the
run of the first. In the place of each tap it gets a function of the standard library that does nothing, so that it can
be loaded where this package is not installed.

Activation checkpointing runs forwards once more inside backward; they are no new values, and taps pass over them.

Compiled code cannot call back into Python, so each tap asks `is_compiling` first, and nothing that the compiler would
have to watch before that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch.compiler import assume_constant_result, is_compiling

from .torch_names import Root


class Listener(Protocol):
    """What a hook does about it."""

    @property
    def saving(self) -> bool:
        """Whether anything is due: if not, only `begin_step` is called."""

    def begin_step(self, root: Root) -> None:
        """A registered model is about to run."""

    def compiled(self, root: Root) -> None:
        """A registered model is being compiled together with its taps: it will not be heard of."""

    def inputs_of(self, path: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """The module at `path` is about to run on these."""

    def outputs_of(self, path: str, output: Any) -> None:
        """The module at `path` gave this."""

    def gradient_of(self, name: str, parameter: torch.Tensor) -> None:
        """The gradient of a parameter is there."""


class _Tap:
    __slots__ = ("_listener", "_what")

    def __init__(self, listener: Listener, what: Any) -> None:
        self._listener, self._what = listener, what

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., None]:
        return contextlib.nullcontext().__exit__

    def __reduce__(self) -> tuple[Any, ...]:
        # It takes anything, gives None, and can be pickled.
        return getattr, (contextlib.nullcontext(), "__exit__")


class BeginStep(_Tap):
    """Before a root's forward."""

    __slots__ = ("_compiled",)

    def __init__(self, listener: Listener, root: Root) -> None:
        super().__init__(listener, root)
        # The compiler calls this one itself, once, and keeps nothing of it in the graph.
        constant: Any = assume_constant_result
        self._compiled = constant(lambda: listener.compiled(root))

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        if is_compiling():
            self._compiled()
        elif not _in_backward():
            self._listener.begin_step(self._what)


class Inputs(_Tap):
    """Before a module's forward."""

    __slots__ = ()

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not is_compiling() and self._listener.saving and not _in_backward():
            self._listener.inputs_of(self._what, args, kwargs)


class Outputs(_Tap):
    """After a module's forward."""

    __slots__ = ()

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if not is_compiling() and self._listener.saving and not _in_backward():
            self._listener.outputs_of(self._what, output)


class Gradient(_Tap):
    """After the gradient of a parameter was added up."""

    __slots__ = ()

    def __call__(self, parameter: torch.Tensor) -> None:
        if not is_compiling() and self._listener.saving:
            self._listener.gradient_of(self._what, parameter)


class CompiledCall:
    """In the place of what `module.compile()` compiled, which takes the module's own taps along into the graph. Copies
    of a module leave it behind."""

    def __init__(self, listener: Listener, root: Root, call: Callable[..., Any]) -> None:
        self._listener, self._root, self._call = listener, root, call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._listener.begin_step(self._root)
        name = self._root.module_name("")
        if self._listener.saving:
            self._listener.inputs_of(name, args, kwargs)
        output = self._call(*args, **kwargs)
        if self._listener.saving:
            self._listener.outputs_of(name, output)
        return output


def _in_backward() -> bool:
    # torch's own checkpointing asks the same way.
    return bool(torch._C._current_graph_task_id() != -1)
