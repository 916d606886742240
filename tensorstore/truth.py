"""The words for true and false in configurations and environment variables."""

from __future__ import annotations

import os

from .errors import ConfigurationError

_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def truth_of(word: str) -> bool | None:
    """Return the truth value that a word stands for; None for any other word."""
    return _WORDS.get(word.strip().lower())


def is_switched_on(variable: str, default: bool) -> bool:
    """Return the truth value of an environment variable, or a default if it is unset or empty.

    Raises:
        ConfigurationError: The variable is none of the words for true and false.
    """
    text = os.environ.get(variable, "").strip()
    found = truth_of(text) if text else default
    if found is None:
        raise ConfigurationError(f"{variable} must be 1, true, yes or on, or 0, false, no or off, got {text!r}")
    return found
