"""Parsers of JSON and YAML from other programs, which may be malicious."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..errors import CorruptFile, importing

_PYTHON = "tag:yaml.org,2002:python/"
_MOST_PARTS = 1_000_000
_DEEPEST = 64
_MOST_BITS = 14_000  # Python writes integers of up to 4300 digits


def json_of(text: bytes | str, path: str) -> Any:
    """Return the value of a JSON text. Raises CorruptFile, which names `path`, if it is not JSON."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise CorruptFile(path, f"this is not JSON: {exc}") from exc
    if _depth(found) > _DEEPEST:
        raise CorruptFile(path, f"its values are nested more than {_DEEPEST} deep")
    return found


def yaml_of(text: bytes, path: str) -> dict[str, Any]:
    """Return the mapping that a YAML text holds; an empty one for an empty text.

    No Python object is created: tuples become lists, and other objects the names of their classes.

    Raises:
        CorruptFile: It is not YAML, or not a mapping, or too large once its references are expanded.
        MissingExtra: PyYAML is not installed.
    """
    with importing("PyYAML", "yaml", f"reading {path}"):
        import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """A loader that reads plain values only."""

    Loader.add_multi_constructor(_PYTHON, _plain)
    try:
        found = yaml.load(text, Loader)  # a SafeLoader
        _check_size(found)
    except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as exc:
        # PyYAML lets errors of its constructors pass: `!!bool x` is a KeyError.
        raise CorruptFile(path, f"this is not YAML: {exc}") from exc
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise CorruptFile(path, f"it must hold a mapping, and holds {type(found).__name__}")
    if _depth(found) > _DEEPEST:
        raise CorruptFile(path, f"its values are nested more than {_DEEPEST} deep")
    return found


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level and depth <= _DEEPEST:
        inner = [part.values() if isinstance(part, dict) else part for part in level if isinstance(part, dict | list)]
        level = [each for part in inner for each in part]
        depth += bool(inner)
    return depth


def _plain(loader: Any, suffix: str, node: Any) -> Any:
    if suffix == "tuple":
        return loader.construct_sequence(node, deep=True)
    return suffix


def _check_size(value: Any) -> None:
    """Raise ValueError if the value, with all references expanded, is too large, or contains itself."""
    sizes: dict[int, int | None] = {}

    def size(part: Any) -> int:
        if isinstance(part, int) and part.bit_length() > _MOST_BITS:
            raise ValueError("it has a number of more than 4000 digits")
        if not isinstance(part, dict | list):
            return 1
        if id(part) in sizes:
            known = sizes[id(part)]
            if known is None:
                raise ValueError("it contains itself")
            return known
        sizes[id(part)] = None
        total = 1 + sum(size(each) for each in (part.values() if isinstance(part, dict) else part))
        if total > _MOST_PARTS:
            raise ValueError(f"its references repeat more than {_MOST_PARTS} values")
        sizes[id(part)] = total
        return total

    size(value)


def text_of(value: Any) -> str | None:
    """Return a text with lone surrogates replaced; None for an empty one or another value."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) and value else None


def clean(value: Any) -> Any:
    """Return a JSON value with lone surrogates replaced in all texts."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {clean(str(key)): clean(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [clean(each) for each in value]
    return value
