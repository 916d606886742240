"""Observers of MXNet's backward."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import mxnet as mx


class BackwardObserver(Protocol):
    """The object that is notified of each backward."""

    @property
    def saving_tensors(self) -> bool:
        """True if more than losses is due. If not, `backward_ran` is not called."""

    def backward_ran(self) -> None:
        """Read the computed gradients."""


_observers: weakref.WeakSet[Any] = weakref.WeakSet()


def observe_backward(observer: BackwardObserver) -> None:
    """Call `observer.backward_ran` after each backward of the process.

    MXNet has no hooks for gradients, and the next callback, in the next forward, is too late: with grad_req='add'
    gradients are set to zero before it. So both `backward` functions of MXNet are wrapped, once.
    """
    _observers.add(observer)
    _wrap_backward()


def stop_observing_backward(observer: BackwardObserver) -> None:
    """Stop calling `observer.backward_ran`."""
    _observers.discard(observer)


@functools.cache
def _wrap_backward() -> None:
    for owner in (mx.nd.NDArray, mx.autograd):
        owner.backward = _wrap(owner.backward)


def _wrap(backward: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(backward)
    def observed(*args: Any, **kwargs: Any) -> None:
        backward(*args, **kwargs)
        for observer in list(_observers):
            if observer.saving_tensors:
                observer.backward_ran()

    return observed
