"""The metadata of a run: JSON values that a user or a library stores with it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigurationError
from ..html_table import TableOfValues

MOST_ELEMENTS = 1000
"""The most elements of a stored array. A larger one is replaced by a sentence."""
_MOST_VALUES = 10_000
"""The most elements of a stored list."""
_MOST_KEPT = 50_000
"""The most values that a run stores. A text counts as one value for each ten characters."""
_VALUE_TEXT = 10
_MOST_TEXT = 100_000
_SHORT_TEXT = 100
_DEEPEST = 16
_MOST_BITS = 1024


class Environment(TableOfValues[Any]):
    """The environment of a program by name, which a notebook shows as a table."""

    title = "Environment"


def checked_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the metadata of a run in the types of JSON.

    Arrays, tensors and numbers of numpy become numbers; NaN, infinities and objects that JSON lacks become texts. A
    large array or list becomes a text that describes it, and so does an object that contains itself.

    Raises:
        ConfigurationError: The metadata is not a mapping.
    """
    if not isinstance(metadata, Mapping | None):
        raise ConfigurationError(f"metadata must be a mapping such as {{'lr': 0.1}}, got {metadata!r:.200}")
    return _Conversion().mapping(metadata or {}, ())


class _Conversion:
    """The conversion of one document. Each method receives the ids of the objects around the value."""

    def __init__(self) -> None:
        self._left = _MOST_KEPT

    def mapping(self, value: Mapping[Any, Any], within: tuple[int, ...]) -> dict[str, Any]:
        within = (*within, id(value))
        return {self._text(key): self._value(each, within) for key, each in value.items()}

    def _value(self, value: Any, within: tuple[int, ...]) -> Any:
        self._left -= 1
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        if value is None or isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= _MOST_BITS):
            return value
        if isinstance(value, str):
            return self._text(value)
        try:
            if id(value) in within:
                return f"{_name(value)} that contains itself"
            if isinstance(value, Mapping | list | tuple | set | frozenset):
                return self._container(value, within)
            if (size := _size(value)) is not None and (size > MOST_ELEMENTS or self._left <= 0):
                return f"{_name(value)} of shape {tuple(value.shape)} and dtype {value.dtype}"
            if hasattr(value, "tolist") and len(within) < _DEEPEST:
                return self._value(value.tolist(), (*within, id(value)))
            return self._text(value)
        except Exception as exc:  # noqa: BLE001 - a user's class may raise anything, which must not end training
            return f"{_name(value)} that cannot be kept: {type(exc).__name__}"

    def _container(self, value: Any, within: tuple[int, ...]) -> Any:
        if len(value) > _MOST_VALUES or self._left <= 0 or len(within) >= _DEEPEST:
            return self._text(f"{_name(value)} of {len(value)} values")
        if isinstance(value, Mapping):
            return self.mapping(value, within)
        return [self._value(each, (*within, id(value))) for each in value]

    def _text(self, value: Any) -> str:
        text = str(value)
        most = _MOST_TEXT if self._left > 0 else _SHORT_TEXT
        self._left -= min(len(text), most) // _VALUE_TEXT
        return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


def _name(value: Any) -> str:
    return type(value).__name__


def _size(value: Any) -> int | None:
    """Return the number of elements of an array of any library; None for other values, or without a shape."""
    try:
        return math.prod(int(each) for each in value.shape) if hasattr(value, "dtype") else None
    except (TypeError, ValueError, AttributeError):
        return None
