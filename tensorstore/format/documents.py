"""Reads and checks the JSON documents of a run, each into a frozen dataclass.

A dataclass is the schema of its document: its fields have the accepted types. Unknown keys are ignored, so that a later
release may add some.
"""

from __future__ import annotations

import json
import math
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from .checksum import CHECKSUM, DAMAGED_OR_EDITED, check_document

_T = TypeVar("_T")

_DEEPEST = 200
"""The most levels of nesting. Python's parser has no limit but the stack of the thread."""
_QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


class Whole(NamedTuple):
    """An integer from `least` to `most`."""

    least: int
    most: int

    def check(self, name: str, value: Any) -> None:
        if not self.least <= value <= self.most:
            raise ValueError(f"{name} must be from {self.least} to {self.most}, got {_shown(value)}")


class Moment(NamedTuple):
    """A time in ISO 8601 that can be converted to UTC."""

    def check(self, name: str, value: Any) -> None:
        try:
            utc(value)
        except ValueError as exc:
            raise ValueError(f"{name} must be a time in ISO 8601, got {_shown(value)}") from exc


class Described(NamedTuple):
    """An object with the schema of a dataclass, kept as a mapping with all its keys."""

    kind: type

    def check(self, name: str, value: Any) -> None:
        try:
            from_object(value, self.kind)
        except ValueError as exc:
            raise ValueError(f"{name}: {exc}") from exc


# Types of fields, with the checks beyond the type.
Count = Annotated[int, Whole(1, 1 << 20)]
Number = Annotated[int, Whole(0, (1 << 62) - 1)]
Time = Annotated[str, Moment()]


def read_document(data: bytes, kind: type[_T]) -> _T:
    """Return a JSON document as the dataclass `kind`.

    Raises:
        ValueError: The bytes are not a JSON object of this schema; the message names the key.
    """
    return from_object(read_object(data), kind)


def read_object(data: bytes) -> dict[str, Any]:
    """Return a JSON object whose schema is not checked.

    Raises:
        ValueError: The bytes are not a JSON object, or do not match the checksum in it.
    """
    checked = check_document(data)
    if _depth(data) > _DEEPEST:
        raise ValueError(f"its lists and objects are nested more than {_DEEPEST} levels deep")
    try:
        # Not `data` itself, for which json would also guess UTF-16 and UTF-32.
        found = json.loads(
            data.decode(), object_pairs_hook=_distinct, parse_constant=_finite_number, parse_float=_finite_number
        )
    except RecursionError as exc:
        raise ValueError("its lists and objects are nested too deep") from exc
    except ValueError as exc:
        raise ValueError(f"it is not JSON: {exc}") from exc
    if not isinstance(found, dict):
        raise ValueError(f"it must be a JSON object, got {_shown(found)}")
    if CHECKSUM in found and not checked:
        raise ValueError(DAMAGED_OR_EDITED)
    return found


def from_object(document: Mapping[str, Any], kind: type[_T]) -> _T:
    """Return a parsed JSON object as the dataclass `kind`. Raises ValueError."""
    found = {}
    for name, (expected, required) in _schema(kind).items():  # type: ignore[arg-type]  # a class is hashable
        if name in document:
            found[name] = _field(name, document[name], expected)
        elif required:
            raise ValueError(f"the key {name} is missing")
    return kind(**found)


def _field(name: str, value: Any, expected: Any) -> Any:
    if not is_dataclass(expected):
        check_value(name, value, expected)
        return value
    _check_type(name, value, dict, "an object")
    try:
        return from_object(value, expected)  # type: ignore[arg-type]  # a dataclass is a type
    except ValueError as exc:
        raise ValueError(f"{name}: {exc}") from exc


def check_value(name: str, value: Any, expected: Any) -> None:
    """Raise ValueError, naming `name`, unless a value of parsed JSON is of the `expected` type.

    The type is str, int, float, bool, None, a union, a list or a mapping. Each may be `Annotated` with objects that
    have a method `check`.
    """
    origin, arguments = get_origin(expected), get_args(expected)
    if origin is Annotated:
        check_value(name, value, arguments[0])
        for each in arguments[1:]:
            each.check(name, value)
    elif origin in (Union, types.UnionType):
        _check_union(name, value, arguments)
    elif isinstance(origin, type) and issubclass(origin, Sequence):
        _check_type(name, value, list, "a list")
        for position, element in enumerate(value):
            check_value(f"{name}[{position}]", element, arguments[0])
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        _check_type(name, value, dict, "an object")
        for key, element in value.items():
            check_value(f"{name}[{key!r}]", element, arguments[1])
    elif expected is not Any:
        _check_plain(name, value, expected)


def utc(text: str) -> datetime:
    """Return a time in ISO 8601 in UTC. Raises ValueError."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except OverflowError as exc:
        raise ValueError(f"{text!r} is outside the range of UTC times") from exc


@lru_cache(maxsize=64)
def _schema(kind: type) -> dict[str, tuple[Any, bool]]:
    hints = get_type_hints(kind, include_extras=True)
    return {
        field.name: (hints[field.name], field.default is MISSING and field.default_factory is MISSING)
        for field in fields(kind)
    }


_PLAIN = {str: "a text", int: "an integer", float: "a number", bool: "true or false", type(None): "null"}


def _check_plain(name: str, value: Any, expected: type) -> None:
    accepted = (int, float) if expected is float else expected
    # To Python, true is the integer 1.
    if not isinstance(value, accepted) or (isinstance(value, bool) and expected is not bool):
        raise ValueError(f"{name} must be {_PLAIN[expected]}, got {_shown(value)}")


def _check_union(name: str, value: Any, kinds: Sequence[Any]) -> None:
    errors = []
    for kind in kinds:
        try:
            return check_value(name, value, kind)
        except ValueError as exc:
            errors.append(str(exc))
    raise ValueError(errors[0])


def _check_type(name: str, value: Any, kind: type, words: str) -> None:
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be {words}, got {_shown(value)}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _depth(data: bytes) -> int:
    """Return how deep lists and objects are nested; 0 if that certainly is not too deep."""
    if data.count(b"[") + data.count(b"{") <= _DEEPEST:
        return 0
    deepest = depth = 0
    for sign in _QUOTED.sub(b"", data):
        if sign in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif sign in b"]}":
            depth -= 1
    return deepest


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {_shown(next(name for name in names if names.count(name) > 1))} appears twice")
    for text in (*found, *(value for value in found.values() if isinstance(value, str))):
        text.encode()  # JSON can spell characters that no text holds
    return found


def _finite_number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number
