"""A range of global steps, to which a trial can be restricted."""

from __future__ import annotations

from ..errors import ConfigurationError

StepRange = tuple[int | None, int | None]
"""Global steps from the first to before the second. None for either leaves that side open."""


def checked_range(range_steps: StepRange | None) -> StepRange | None:
    """Return a range of steps as a pair. Raises ConfigurationError for one that is empty."""
    if range_steps is None:
        return None
    first, end = range_steps
    if first is not None and end is not None and first >= end:
        raise ConfigurationError(f"range_steps=({first}, {end}) is empty: it means {first} <= step < {end}")
    return first, end


def is_in_range(step: int, range_steps: StepRange) -> bool:
    """Return whether first <= step < end."""
    first, end = range_steps
    return (first is None or step >= first) and (end is None or step < end)
