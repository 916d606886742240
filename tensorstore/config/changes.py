"""The number of changes of the configuration, which invalidates results that were computed from it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

_Type = TypeVar("_Type", bound=type)


class Changes:
    """The numbers of changes, which only grow."""

    patterns = 0
    """The changes of the regular expressions of collections."""
    names = 0
    """The changes of the names of tensors in collections."""
    attributes = 0
    """The changes of attributes of collections and their configurations, in place or by assignment."""

    @classmethod
    def count(cls) -> int:
        """Return the number of all changes."""
        return cls.patterns + cls.names + cls.attributes


def _counts_changes(of: _Type) -> _Type:
    """Let a subclass of list or set count the calls of the methods that change it."""
    for name in _CHANGING:
        if hasattr(of, name):
            setattr(of, name, _counted(getattr(of, name)))
    return of


_CHANGING = (
    *("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse"),
    *("add", "discard", "update", "difference_update", "intersection_update", "symmetric_difference_update"),
    *("__setitem__", "__delitem__", "__iadd__", "__imul__", "__ior__", "__iand__", "__isub__", "__ixor__"),
)
"""The methods that change a list or a set."""


def _counted(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        Changes.attributes += 1
        return result

    return call


@_counts_changes
class _List(list[Any]):
    pass


@_counts_changes
class _Set(set[Any]):
    def __repr__(self) -> str:
        return repr(set(self))


class Configuration:
    """An object that counts the changes of its attributes, and those inside its lists and sets."""

    def __setattr__(self, name: str, value: object) -> None:
        if type(value) is list:
            value = _List(value)
        elif type(value) is set:
            value = _Set(value)
        super().__setattr__(name, value)
        Changes.attributes += 1
