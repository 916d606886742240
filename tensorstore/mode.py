"""The phases of a job, each of which counts its own steps."""

from __future__ import annotations

import operator
from enum import Enum
from numbers import Real
from typing import Any

from .errors import ConfigurationError, shown


class ModeKeys(Enum):
    """The modes of a job.

    TRAIN, EVAL and PREDICT count their own steps. GLOBAL is the mode of a job that never set one, and for readers the
    count over all modes.
    """

    TRAIN = 1
    EVAL = 2
    PREDICT = 3
    GLOBAL = 4

    __hash__ = object.__hash__  # that of Enum is a function of Python

    @classmethod
    def parse(cls, value: ModeKeys | str | int) -> ModeKeys:
        """Return the mode of a member, of its name in any case, or of its number.

        Args:
            value: A mode, such as `modes.TRAIN`, "train" or 1.

        Returns:
            The mode.

        Raises:
            ConfigurationError: There is no such mode.
        """
        if type(value) is cls:
            return value
        try:
            if isinstance(value, str):
                return cls[value.upper()]
            return cls(value)
        except Exception:  # noqa: BLE001 - also what a foreign `__eq__` raises
            # The same class imported through another module path is a different class, so its name is compared.
            name = getattr(value, "name", "")
            if isinstance(name, str) and name in cls.__members__:
                return cls[name]
            known = ", ".join(cls.__members__)
            raise ConfigurationError(f"unknown mode {shown(value)}; the modes are {known}") from None


modes = ModeKeys
GLOBAL = ModeKeys.GLOBAL


def checked_step(step: Any) -> Any:
    """Return a step. Raises ConfigurationError for a text or another value that is no number."""
    if isinstance(step, Real):
        return step
    try:
        return operator.index(step)  # such as a tensor of one integer
    except TypeError as exc:
        raise ConfigurationError(f"a step must be a whole number, got {step!r}") from exc


def checked_range(steps: Any, argument: str = "range_steps") -> tuple[Any, Any]:
    """Return a range of steps as a pair. Raises ConfigurationError for one that is empty, or that is no pair."""
    try:
        first, end = (None if step is None else checked_step(step) for step in steps)
    except (TypeError, ValueError):
        raise ConfigurationError(f"{argument} must be a pair (first, end), got {steps!r:.200}") from None
    if first is not None and end is not None and first >= end:
        raise ConfigurationError(f"{argument}=({first}, {end}) is empty: it means {first} <= step < {end}")
    return first, end


def checked_steps(steps: Any) -> list[Any]:
    """Return steps as a list. Raises ConfigurationError for a value that is no list of them."""
    try:
        found = iter(steps)
    except TypeError as exc:
        raise ConfigurationError(f"steps must be a list of whole numbers, got {steps!r}") from exc
    return [checked_step(step) for step in found]


def check_not_negative(name: str, value: float) -> None:
    """Raise ConfigurationError unless an argument is a number of 0 or more."""
    if not isinstance(value, Real) or not value >= 0:
        raise ConfigurationError(f"{name} must be a number of 0 or more, got {value!r:.200}")
