"""What is registered with MXNet: callbacks that tell a hook what a block does.

A block is also called with symbols, when MXNet infers shapes or makes a graph of it: nothing is computed then, and taps
pass over it.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import mxnet as mx

from ..core.callbacks import UncopiedCallback
from .arrays import is_symbolic


class Listener(Protocol):
    """What a hook does about it."""

    @property
    def saving(self) -> bool:
        """Whether anything is due: if not, only `begin_step` is called."""

    def begin_step(self, root: Any, inputs: Any) -> None:
        """A registered model is about to run on these."""

    def end_forward(self, root: Any) -> None:
        """A registered model has run."""

    def values_of(self, name: str, kind: str, values: Any) -> None:
        """A block is about to run on these (`input`), or gave them (`output`)."""

    def backward_ran(self) -> None:
        """Gradients are there."""


class _Tap(UncopiedCallback):
    __slots__ = ("_listener", "_what")

    def __init__(self, listener: Listener, what: Any) -> None:
        self._listener, self._what = listener, what


class BeginStep(_Tap):
    """Before a root's forward."""

    __slots__ = ()

    def __call__(self, block: Any, args: Any) -> None:
        if not is_symbolic(args):
            self._listener.begin_step(self._what, args)


class EndForward(_Tap):
    """After a root's forward."""

    __slots__ = ()

    def __call__(self, block: Any, args: Any, output: Any) -> None:
        if self._listener.saving and not is_symbolic(output):
            self._listener.end_forward(self._what)


class Inputs(_Tap):
    """Before a block's forward."""

    __slots__ = ()

    def __call__(self, block: Any, args: Any) -> None:
        if self._listener.saving and not is_symbolic(args):
            self._listener.values_of(self._what, "input", args)


class Outputs(_Tap):
    """After a block's forward."""

    __slots__ = ()

    def __call__(self, block: Any, args: Any, output: Any) -> None:
        if self._listener.saving and not is_symbolic(output):
            self._listener.values_of(self._what, "output", output)


_listeners: weakref.WeakSet[Any] = weakref.WeakSet()


def listen_to_backward(listener: Listener) -> None:
    """Call `listener.backward_ran` after each backward of the process, of whatever it is.

    MXNet has no hooks for gradients, and the next moment that is known, the next forward, is too late: with
    grad_req='add' they are set to zero before it. So both of its `backward` are wrapped, once.
    """
    _listeners.add(listener)
    _wrap_backward()


def ignore_backward(listener: Listener) -> None:
    """Call `listener.backward_ran` no more."""
    _listeners.discard(listener)


@functools.cache
def _wrap_backward() -> None:
    for owner in (mx.nd.NDArray, mx.autograd):
        owner.backward = _and_tell(owner.backward)


def _and_tell(backward: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(backward)
    def call(*args: Any, **kwargs: Any) -> None:
        backward(*args, **kwargs)
        for listener in list(_listeners):
            if listener.saving:
                listener.backward_ran()

    return call
