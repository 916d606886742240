"""Nested objects, such as the metadata of a run: as one level of keys, and as values of JSON."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested objects by their keys, joined by dots: `{"model.width": 64}`.

    If two have the same key, as in `{"a.b": 1, "a": {"b": 2}}`, the second one gets a number: `a.b (2)`.

    Args:
        values: The outermost object.
        prefix: A text before each key.
    """
    found: dict[str, Any] = {}
    for key, each in _leaves(values, prefix):
        numbered = (f"{key} ({number})" for number in itertools.count(2))
        found[next(name for name in itertools.chain([key], numbered) if name not in found)] = each
    return found


def _leaves(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, each in values.items():
        if isinstance(each, Mapping):
            yield from _leaves(each, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", each


def plain(value: Any) -> Any:
    """Return a value that JSON can represent: NaN, infinities and other values become text, times in ISO 8601."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
