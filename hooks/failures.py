"""What turned a hook off."""

from __future__ import annotations

import logging

logger = logging.getLogger("tensortrial.hooks")


class Failures:
    """The errors inside the hook of `out_dir`, of which the first is logged."""

    def __init__(self, out_dir: str) -> None:
        self._out_dir = out_dir
        self.first: str | None = None
        """The error that turned the hook off, in one line; None if it is on."""

    def note(self, exc: Exception) -> None:
        """Log the first error that turns the hook off, and keep it for the run's end."""
        if self.first is None:
            self.first = f"{type(exc).__name__}: {exc}"
            logger.error(
                "the hook of %s is off from here on, training is not affected: %s",
                self._out_dir,
                self.first,
                exc_info=exc,
            )
