"""A mapping from objects of the user, which may define `__eq__`."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, MutableMapping
from functools import partial
from typing import TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")


class IdentityMap(MutableMapping[_K, _V]):
    """A mapping with weak references to its keys, which it compares by identity.

    A `weakref.WeakKeyDictionary` calls the `__eq__` of a key, which may raise an error or return an array.
    """

    def __init__(self) -> None:
        self._items: dict[int, tuple[weakref.ref[_K], _V]] = {}

    def __getitem__(self, key: _K) -> _V:
        return self._items[id(key)][1]

    def __setitem__(self, key: _K, value: _V) -> None:
        # The reference is passed as the default of `pop`. Ctrl-C cannot interrupt a function in C.
        self._items[id(key)] = weakref.ref(key, partial(self._items.pop, id(key))), value

    def __delitem__(self, key: _K) -> None:
        del self._items[id(key)]

    def __iter__(self) -> Iterator[_K]:
        found = [reference() for reference, _ in list(self._items.values())]
        return iter([key for key in found if key is not None])

    def __len__(self) -> int:
        return len(self._items)

    def clear(self) -> None:
        self._items.clear()
