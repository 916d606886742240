"""The times of other programs, which may be wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

LATEST = 8e9
"""Seconds since 1970. A time after 2200 is garbage."""


def nanoseconds(time: Any, per_second: int = 1) -> int:
    """Return a number of seconds since 1970, or of parts of a second, in nanoseconds; 0 if it is no such time."""
    is_time = isinstance(time, int | float) and 0 < time < LATEST * per_second
    # A double has no more than the microseconds of such a time.
    return round(time / per_second * 1e6) * 1000 if is_time else 0


def iso_time(time: Any, per_second: int = 1) -> str | None:
    """Return the same time in ISO 8601, in UTC; None if it is no such time."""
    found = nanoseconds(time, per_second)
    return datetime.fromtimestamp(found / 1e9, UTC).isoformat() if found else None
