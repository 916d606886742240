"""The names of the leaves of a pytree, from their paths."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import jax

from tensortrial.errors import UnsupportedValue
from tensortrial.format.record import check_name

# The most tree structures whose names are cached. A job has a few.
_MOST_TREES = 64

_PREFIXES = {"weights": "", "biases": "", "losses": "", "metrics": "", "gradients": "gradient", "updates": "update"}
"""The prefixes of the leaves' names by collection. Other collections use their own name."""


class TreeNames:
    """The names of the leaves of trees, found once for each structure of a tree.

    Args:
        refuse: Called with the name that two leaves of a tree share, and the error.
    """

    def __init__(self, refuse: Callable[[str, UnsupportedValue], None]) -> None:
        self._refuse = refuse
        self._known: dict[tuple[str, Any], list[str | None]] = {}

    def flatten(self, collection: str, tree: Any) -> tuple[list[Any], list[str | None], bool]:
        """Return the leaves of a tree with their names.

        Args:
            collection: The collection that the leaves join, which determines the prefix of their names.
            tree: A pytree.

        Returns:
            The leaves, for each its name or None if it is not saved, and whether the names are new.

        Raises:
            UnsupportedValue: JAX cannot flatten the tree.
        """
        try:
            leaves, structure = jax.tree_util.tree_flatten(tree)
            key, known = (collection, structure), None
            with suppress(Exception):  # what a user's class tells JAX of its structure may not be hashed or compared
                known = self._known.get(key)
            if known:
                return leaves, known, False
            paths = [path for path, _ in _walk(tree)]
        except Exception as exc:  # a user's class may raise anything when it is flattened
            raise UnsupportedValue(f"JAX cannot flatten the tree, a {type(tree).__name__}: {exc}") from exc
        found = self._unique(collection, paths)
        if len(self._known) >= _MOST_TREES:
            self._known.clear()
        with suppress(Exception):  # as above
            self._known[key] = found
        return leaves, found, True

    def forget(self) -> None:
        """Forget all structures, because they may refer to a model."""
        self._known.clear()

    def _unique(self, collection: str, paths: Sequence[tuple[Any, ...]]) -> list[str | None]:
        prefix = _PREFIXES.get(collection, collection)
        names: list[str | None] = []
        found: set[str | None] = set()
        for path in paths:
            name: str | None = "/".join(filter(None, [prefix, *map(_text, path)])) or collection
            try:
                check_name(name)
                if name in found:
                    raise UnsupportedValue("another leaf of the tree has this name; rename one of their keys")
            except UnsupportedValue as exc:
                self._refuse(str(name), exc)
                name = None
            names.append(name)
            found.add(name)
        return names


def path_of(name: str, collection: str) -> str:
    """Return a name without its collection's prefix: for a gradient, the name of its parameter."""
    return name.removeprefix(_PREFIXES.get(collection, collection)).removeprefix("/")


def _walk(tree: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the leaves with their paths. A variable of Flax is not a level of the path."""
    boxes = _boxes()
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda each: isinstance(each, boxes))[0]:
        if isinstance(leaf, boxes):
            # The first key is `value`.
            for inner, each in jax.tree_util.tree_flatten_with_path(leaf)[0]:
                yield (*path, *inner[1:]), each
        else:
            yield path, leaf


def _boxes() -> tuple[type[Any], ...]:
    """Return the classes of Flax that wrap an array, if the program has imported them."""
    classes = (("flax.nnx", "Variable"), ("flax.core.meta", "AxisMetadata"))
    found = [getattr(sys.modules.get(module), name, None) for module, name in classes]
    return tuple(each for each in found if each is not None)


def _text(key: Any) -> str:
    """Return the text of a key in a path: of a dictionary, a sequence, a dataclass or another node."""
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
