"""What a caller passes to a hook, as the run keeps it."""

from __future__ import annotations

from typing import Any

from tensortrial.errors import UnsupportedValue


def as_number(value: Any, errors_of_training: tuple[type[Exception], ...] = ()) -> float:
    """Return a number, or anything that has one. Raises UnsupportedValue, but passes `errors_of_training` through."""
    try:
        return float(value)
    except errors_of_training:
        raise
    except Exception as exc:  # whatever a foreign `__float__` raises
        raise UnsupportedValue(f"{shown(value)} is not a number: {exc}") from exc


def as_nanoseconds(timestamp: Any) -> int:
    """Return a time in seconds since 1970 as the index keeps it. Raises UnsupportedValue."""
    try:
        found = int(timestamp * 1e9)
    except (TypeError, ValueError, OverflowError) as exc:
        raise UnsupportedValue(f"timestamp must be seconds since 1970, got {shown(timestamp)}: {exc}") from exc
    if abs(found) >= 1 << 63:
        raise UnsupportedValue(f"timestamp must be seconds since 1970, got {shown(timestamp)}")
    return found


def shown(value: Any) -> str:
    """Return the beginning of a value's repr, for a message."""
    try:
        return f"{value!r:.200}"
    except Exception:  # noqa: BLE001 - of a foreign `__repr__`
        return f"a {type(value).__name__}"
