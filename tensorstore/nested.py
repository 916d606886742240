"""Nested objects, such as the metadata of a run, as one level of keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested objects with their keys joined by dots: `model.width`, 64.

    Args:
        values: The outermost object.
        prefix: A text before each key.
    """
    for key, each in values.items():
        if isinstance(each, Mapping):
            yield from flat(each, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", each
