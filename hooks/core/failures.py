"""The failures of a hook: the error that turns it off, and the values that it leaves out. Each is logged once."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from tensortrial.errors import RunError, message_of
from tensortrial.redaction import without_credentials
from tensortrial.truth import is_switched_on

from .log import logger

STRICT_VARIABLE = "TENSORTRIAL_STRICT"

# A program that invents new names forever must fill neither the memory nor the log.
_MAX_LOGGED = 1000


class Failures:
    """The errors inside the hook of `out_dir`, and the values and calls that it left out. Each is logged once."""

    def __init__(self, out_dir: str) -> None:
        strict()  # a wrong value is an error before training begins
        self._out_dir = out_dir
        self.first: str | None = None
        """The error that turned the hook off, in one line; None if it is on."""
        self._logged: dict[int, set[str]] = {logging.ERROR: set(), logging.WARNING: set()}

    def note(self, exc: Exception) -> None:
        """Log the first error that turns the hook off, and keep it for the run's end."""
        if self.first is None:
            self.first = f"{type(exc).__name__}: {message_of(exc)}"
            logger.error(
                "the hook of %s is off from here on, training is not affected: %s",
                without_credentials(self._out_dir),
                self.first,
                exc_info=None if isinstance(exc, RunError) else exc,  # another job is no fault of the hook
            )

    def refuse(self, exc: Exception, key: str, message: str, *arguments: object) -> None:
        """Log once for each `key` that a value or a call was left out. In strict mode the error is raised."""
        if strict():
            raise exc
        self._log_once(logging.ERROR, key, message, *arguments)

    def warn_once(self, text: str, *arguments: object) -> None:
        """Log a warning, unless a warning with the same text was logged before."""
        self._log_once(logging.WARNING, text, text, *arguments)

    def warn_of_loss(self) -> None:
        """Log, once, that a value was saved after the hook was closed."""
        text = "the hook of %s is closed, and values that are saved with it now are lost: make a hook for each run"
        self.warn_once(text, without_credentials(self._out_dir))

    def warn_of_repetition(self, name: str) -> None:
        """Log, once, that a number takes the place of the one before."""
        self.warn_once(
            "only the last %r is kept, because no step has begun since the one before: put each step into "
            "`with hook.step():`, or pass its number: hook.log({…}, step=i)",
            name,
        )

    def warn_of_two_modes(self) -> None:
        """Log, once, that the first steps of a training are counted in another mode than those from now on."""
        self.warn_once(
            "the steps before this set_mode are in mode GLOBAL, and those from now on in TRAIN, so that each curve has "
            "two parts: call set_mode(TRAIN) before the first step"
        )

    def _log_once(self, level: int, key: str, message: str, *arguments: object) -> None:
        logged = self._logged[level]
        if key not in logged and len(logged) < _MAX_LOGGED:
            logged.add(key)
            logger.log(level, message, *arguments)

    def warn_of_short_run(self, mode: str, num_steps: int, interval: int) -> None:
        """Log that collections were due at only one of many steps."""
        logger.warning(
            "collections were saved to %s at only 1 of the %d steps of mode %s, because save_interval is %d: pass a "
            "smaller one, such as save_interval=%d, or save the first steps, too, by warmup_steps=10",
            without_credentials(self._out_dir),
            num_steps,
            mode,
            interval,
            max(1, num_steps // 10),
        )

    def warn_of_models(self, names: Iterable[str]) -> None:
        """Log that models were registered, and never ran."""
        logger.warning(
            "nothing of %s was saved, because no forward ran: if a copy of the model runs, register the copy; if only "
            "parts of the model run, put each step into `with hook.step():`",
            ", ".join(sorted(names)),
        )


def strict() -> bool:
    """Return whether errors inside a hook are raised instead of logged: TENSORTRIAL_STRICT=1."""
    return is_switched_on(STRICT_VARIABLE, default=False)
