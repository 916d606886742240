"""The times of other programs, which may be wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

EARLIEST = 1e8
"""Seconds since 1970. A smaller number in a table is the time since the start of a training."""
LATEST = 8e9
"""Seconds since 1970. A time after 2200 is treated as invalid."""


def nanoseconds(time: Any, per_second: int = 1) -> int:
    """Return a time in nanoseconds since 1970; 0 if it is invalid. `per_second` is 1000 for a time in milliseconds."""
    is_time = isinstance(time, int | float) and 0 < time < LATEST * per_second
    # A double represents such a time to a microsecond.
    return round(time / per_second * 1e6) * 1000 if is_time else 0


def iso_time(time: Any, per_second: int = 1) -> str | None:
    """Return a time as text in ISO 8601, in UTC; None if it is invalid. See `nanoseconds`."""
    found = nanoseconds(time, per_second)
    return datetime.fromtimestamp(found / 1e9, UTC).isoformat() if found else None
