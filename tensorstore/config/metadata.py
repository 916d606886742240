"""The metadata of a run: JSON values that a user or a library stores with it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import xxhash

from ..errors import ConfigurationError
from ..html_table import TableOfValues
from ..statistics.digest import digest_of_array

_MOST_JSON = 64_000
"""The most characters of an array, a list or a mapping in JSON. A larger one is replaced by a sentence."""
_MOST_ELEMENTS = _MOST_JSON // 3
"""The most elements of an array or list that may be that short: `[0, 0]`."""
_MOST_DIGESTED = 1 << 24
"""The most elements of an array that is read for its digest: a lazy one may not fit into memory."""
_MOST_HASHED = 1_000_000
"""The most values, or pieces of JSON, of lists and mappings that one document reads for their digests alone: 0.5 s.

Lists that share lists may have any number of values.
"""
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
    array, list or mapping above 64 kB in JSON becomes a sentence with its type, shape, dtype and digest, and an object
    within itself becomes `<cycle>`. What is 16 levels deep becomes a sentence, too.

    Raises:
        ConfigurationError: The metadata is not a mapping.
    """
    if not isinstance(metadata, Mapping | None):
        raise ConfigurationError(f"metadata must be a mapping such as {{'lr': 0.1}}, got {metadata!r:.200}")
    return _Conversion().mapping(metadata or {}, ())


class _Conversion:
    """The conversion of one document. Each method receives the ids of the objects around the value."""

    def __init__(self) -> None:
        self._left, self._unhashed = _MOST_KEPT, _MOST_HASHED

    def mapping(self, value: Mapping[Any, Any], within: tuple[int, ...]) -> dict[str, Any]:
        within, found = (*within, id(value)), dict[str, Any]()
        texts = {key for key in value if issubclass(type(key), str)}
        for key, each in value.items():
            name = self._text(key)
            if name in found or (name in texts and not issubclass(type(key), str)):  # 1 and "1" are two keys
                name = f"{name} ({_name(key)})"
            found[name if name not in found else f"{name} {len(found)}"] = self._value(each, within)
        return found

    def _value(self, value: Any, within: tuple[int, ...]) -> Any:
        self._left -= 1
        try:
            if isinstance(value, float) and not math.isfinite(value):
                return str(value)
            if value is None or isinstance(value, float):
                return value
            if isinstance(value, int) and value.bit_length() <= _MOST_BITS:
                return value
            return self._text(value) if isinstance(value, str) else self._composed(value, within)
        except Exception as exc:  # noqa: BLE001 - a user's class may raise anything, which must not end training
            return _unkept(value, exc)

    def _composed(self, value: Any, within: tuple[int, ...]) -> Any:
        if id(value) in within:
            return "<cycle>"
        if isinstance(value, Mapping | list | tuple | set | frozenset):
            return self._container(value, within)
        size = _size(value)
        if size is not None and (size > _MOST_ELEMENTS or self._left <= 0):
            return self._array(value, size)
        if hasattr(value, "tolist") and len(within) < _DEEPEST:
            try:
                plain = value.tolist()
            except Exception:  # of a tensor without values, for example
                if size is None:
                    raise
                return self._array(value, size)
            if size is not None and len(json.dumps(plain, default=str)) > _MOST_JSON:
                return self._array(value, size)
            return self._value(plain, (*within, id(value)))
        return self._text(value)

    def _container(self, value: Any, within: tuple[int, ...]) -> Any:
        described = f"{_name(value)} of {len(value)} values"
        if len(value) > _MOST_ELEMENTS or self._left <= 0 or len(within) >= _DEEPEST:
            return self._text(described + self._digest(value))
        before = self._left
        if isinstance(value, Mapping):
            found: Any = self.mapping(value, within)
        else:
            found = [self._value(each, (*within, id(value))) for each in _ordered(value)]
        text = json.dumps(found).encode()
        if len(text) <= _MOST_JSON:
            return found
        read = min(before - self._left, self._unhashed)
        self._left, self._unhashed = self._left + read, self._unhashed - read
        return f"{described}, digest {xxhash.xxh3_64_hexdigest(text)}"

    def _array(self, value: Any, size: int) -> str:
        """Return a sentence about an array of any library."""
        described = f"{_name(value)} of shape {tuple(value.shape)}, dtype {value.dtype}"
        if size > _MOST_DIGESTED:
            return described
        with suppress(Exception):  # of a library, or of a dtype, which NumPy cannot read
            plain = value.detach().cpu() if hasattr(value, "detach") else value
            return f"{described}, digest {digest_of_array(np.ascontiguousarray(plain)):016x}"
        return described + self._digest(value)

    def _digest(self, value: Any) -> str:
        """Return the end of a sentence: the digest of all values in a container, or nothing if they are too many."""
        found = xxhash.xxh3_64()
        with suppress(Exception):  # a cycle, or a class that JSON lacks
            for piece in json.JSONEncoder(default=self._plain).iterencode(value):
                self._unhashed -= 1
                if self._unhashed < 0:
                    return ""
                found.update(piece.encode())
            return f", digest {found.hexdigest()}"
        return ""

    def _plain(self, value: Any) -> Any:
        """Return what JSON can hold for a value within a container that is read for its digest."""
        if isinstance(value, Mapping):
            return dict(value)
        if isinstance(value, set | frozenset):
            return _ordered(value)
        size = _size(value)
        return value.tolist() if size is not None and size <= self._unhashed else str(value)

    def _text(self, value: Any) -> str:
        try:
            text = str(value)
        except Exception as exc:  # noqa: BLE001 - also of a key
            text = _unkept(value, exc)
        most = _MOST_TEXT if self._left > 0 else _SHORT_TEXT
        self._left -= min(len(text), most) // _VALUE_TEXT
        return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


def _name(value: Any) -> str:
    return type(value).__name__


def _unkept(value: Any, error: Exception) -> str:
    return f"{_name(value)} that cannot be kept: {type(error).__name__}"


def _ordered(value: Any) -> list[Any]:
    """Return the elements of a container; those of a set in an order that every process has."""
    return sorted(value, key=str) if isinstance(value, set | frozenset) else list(value)


def _size(value: Any) -> int | None:
    """Return the number of elements of an array of any library; None for other values, or without a shape."""
    try:
        return math.prod(int(each) for each in value.shape) if hasattr(value, "dtype") else None
    except (TypeError, ValueError, AttributeError):
        return None
