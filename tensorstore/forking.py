"""Repair of objects in a forked child.

Another thread may have held a lock at the fork, but the child has only the thread that forked. So objects with locks or
threads register here, and this module calls them in the child.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from _thread import RLock
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

_T = TypeVar("_T")

_known: weakref.WeakSet[Any] = weakref.WeakSet()
_callbacks: list[Callable[[], None]] = []


def register(holder: Any) -> None:
    """Call `holder.after_fork()` in each child that is forked from this process while the holder lives."""
    _known.add(holder)


def call_in_child(callback: Callable[[], None]) -> Callable[[], None]:
    """Call a function in each child that is forked from this process."""
    _callbacks.append(callback)
    return callback


def abandon(inherited: Any) -> None:
    """Keep an object forever, because its destructor would wait for threads that this process lacks."""
    # A module's list would be cleared at the end of the interpreter.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))


def _in_child() -> None:
    for callback in _callbacks:
        callback()
    for holder in list(_known):
        holder.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


class Lock(RLock):  # type: ignore[misc]  # it may be inherited from
    """A lock that a forked child gets free, also if another thread held it at the fork.

    A block enters and leaves it in C, because Ctrl-C inside a method of Python would leave it locked.
    """

    def __init__(self) -> None:
        register(self)

    def after_fork(self) -> None:
        """Release the lock."""
        self._at_fork_reinit()  # type: ignore[attr-defined]


class lazy(Generic[_T]):  # noqa: N801  # used as a decorator, like property
    """`functools.cached_property` without its lock.

    Before Python 3.12 all objects of a class share that lock, and a forked child may find it held forever. Without it,
    two threads may both compute the value.
    """

    def __init__(self, compute: Callable[[Any], _T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> lazy[_T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> _T: ...

    def __get__(self, instance: object | None, owner: type) -> _T | lazy[_T]:
        if instance is None:
            return self
        value = self._compute(instance)
        instance.__dict__[self._name] = value
        return value
