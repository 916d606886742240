"""What went wrong with a hook, and is logged once."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

logger = logging.getLogger("tensortrial.hooks")


class Failures:
    """The errors inside the hook of `out_dir`, of which the first is logged, and what it never got to save."""

    def __init__(self, out_dir: str) -> None:
        self._out_dir = out_dir
        self.first: str | None = None
        """The error that turned the hook off, in one line; None if it is on."""
        # A forked child saves nothing, without a word.
        self._quiet_unless = os.getpid()

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

    def warn_of_loss(self) -> None:
        """Log that something was to be saved after the hook was closed, once."""
        if self.first is None and self._quiet_unless == os.getpid():
            self._quiet_unless = -1
            logger.warning(
                "the hook of %s is closed, and what is saved with it is lost: make a hook for each run", self._out_dir
            )

    def warn_of_models(self, names: Iterable[str]) -> None:
        """Log that models were registered, and never ran."""
        logger.warning(
            "nothing was saved of %s: it was registered, but never seen to run; if a copy of it runs, register "
            "the copy; if only parts of it run, put each step into `with hook.step():`",
            ", ".join(sorted(names)),
        )
