"""The phases of a job that steps are counted in."""

from __future__ import annotations

from enum import Enum

from .errors import ConfigurationError


class ModeKeys(Enum):
    """TRAIN, EVAL and PREDICT count their own steps; GLOBAL is the mode of a job that never set one, and, when a
    reader asks for it, the count over all modes."""

    TRAIN = 1
    EVAL = 2
    PREDICT = 3
    GLOBAL = 4

    @classmethod
    def parse(cls, value: ModeKeys | str | int) -> ModeKeys:
        """The mode meant by a member, its name in any case, or its number. Raises ConfigurationError."""
        try:
            if isinstance(value, str):
                return cls[value.upper()]
            return cls(value)
        except (KeyError, ValueError):
            # The same name imported through a second module path is another class: go by its name.
            name = str(getattr(value, "name", ""))
            if name in cls.__members__:
                return cls[name]
            known = ", ".join(cls.__members__)
            raise ConfigurationError(f"unknown mode {value!r}; the modes are {known}") from None


modes = ModeKeys
