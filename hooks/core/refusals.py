"""What a hook left out, said once."""

from __future__ import annotations

import logging
import os

logger = logging.getLogger("tensortrial.hooks")

STRICT_VARIABLE = "TENSORTRIAL_STRICT"

# A program that makes up new names forever is not to fill the memory with them, nor the log.
_MOST = 1000


class Refusals:
    """Values and calls that were left out, each logged once; in strict mode the error is raised."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def add(self, exc: Exception, key: str, sentence: str, *words: object) -> None:
        """Log a sentence once for each `key`."""
        if strict():
            raise exc
        if key not in self._said and len(self._said) < _MOST:
            self._said.add(key)
            logger.error(sentence, *words)


def strict() -> bool:
    """Whether errors inside a hook are raised instead of logged: TENSORTRIAL_STRICT=1."""
    return os.environ.get(STRICT_VARIABLE, "0") not in ("", "0")
