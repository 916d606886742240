"""Constants and small functions of smdebug.core and smdebug.profiler that scripts use."""

from __future__ import annotations

import logging

SCALAR_PREFIX = "scalar/"

ALLOWED_REDUCTIONS = ["min", "max", "mean", "std", "variance", "sum", "prod"]
ALLOWED_NORMS = ["l1", "l2"]

_TRUE = ("y", "yes", "t", "true", "on", "1")
_FALSE = ("n", "no", "f", "false", "off", "0")


def get_logger(name: str = "smdebug") -> logging.Logger:
    """Return a logger."""
    return logging.getLogger(name)


def str2bool(value: bool | str) -> bool:
    """Return the truth value of a command line's text.

    Args:
        value: y, yes, t, true, on or 1; n, no, f, false, off or 0; in any case. Or a truth value.

    Raises:
        ValueError: The text is none of these.
    """
    if isinstance(value, bool):
        return value
    if value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    raise ValueError(f"invalid truth value {value!r}; use one of {', '.join((*_TRUE, *_FALSE))}")
