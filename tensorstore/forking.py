"""What a forked child makes again: locks that another thread may have held at the fork, and what has threads of its
own, which the child has not."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable
from typing import Any

_known: weakref.WeakSet[Any] = weakref.WeakSet()
_callbacks: list[Callable[[], None]] = []


def register(holder: Any) -> None:
    """Have `holder.after_fork()` called in each child that is forked from this process, for as long as it lives."""
    _known.add(holder)


def call_in_child(callback: Callable[[], None]) -> Callable[[], None]:
    """Have a function called in each child that is forked from this process."""
    _callbacks.append(callback)
    return callback


def abandon(inherited: Any) -> None:
    """Keep an object forever: whoever destroyed it would wait for threads that this process does not have."""
    # A list in a module would be emptied when the interpreter ends.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))


def _in_child() -> None:
    for callback in _callbacks:
        callback()
    for holder in list(_known):
        holder.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
