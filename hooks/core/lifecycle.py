"""The life of a run in one process: whether the process saves, the errors that end it, and the close."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from .failures import Failures, strict
from .process.rank import Duty
from .process.shutdown import ends_by_signal
from .run_writer import RunWriter

_OFF_VARIABLES = ("TENSORTRIAL", "USE_SMDEBUG")


class Lifecycle:
    """The life of a run in one process.

    It begins when the hook is made, which checks that the run may be written; `decide` comes before the run is claimed
    at its first step; and it ends once: by `close`, by an error, or in a forked child, which writes nothing.

    Args:
        run: The run, as this worker writes it.
        duty: Whether this worker is one of those that save.
        dry_run: Save nothing.
        resume: Continue the run in out_dir, if there is one.
        follows: Keep to the job's steps also where this process saves nothing.

    Raises:
        RunExists: Another run is in out_dir, and is neither to be resumed nor replaced.
        RunInUse: A living process writes to the run to be resumed.
    """

    def __init__(self, run: RunWriter, duty: Duty, *, dry_run: bool, resume: bool, follows: bool) -> None:
        self._run, self.duty = run, duty
        wanted = not dry_run and switched_on()
        self.active = wanted and duty.saves
        """Whether this process saves anything.

        It saves nothing in a dry run, as a worker that is left out, switched off, failed or closed.
        """
        self.follows = follows and wanted
        """Whether this process keeps to the job's steps although it saves nothing."""
        self.closed = False
        """Whether the run is closed: nothing more is ever saved."""
        self.loses = False
        """True if a value that is saved now is lost because the run is closed.

        A hook that would not have saved it anyway loses nothing, nor does a process that a signal ends.
        """
        if resume and (self.active or self.follows):
            run.resume(follows=not self.active)
        elif self.active:
            run.check()
        self.failures = Failures(run.out_dir)

    def decide(self) -> bool:
        """Find out which worker this is, right before the run is claimed. Return whether it saves."""
        if self.active:
            self.duty.decide()
            self._run.become(self.duty.worker, self.duty.num_workers)
            self.active = self.duty.saves
        return self.active

    def close(self, close_step: Callable[[], None], awaited: Iterable[str]) -> list[Exception]:
        """Close the open step and the run, once.

        Args:
            close_step: Closes the open step.
            awaited: The names of models that were registered and never ran.

        Returns:
            The errors that were raised and logged.
        """
        errors: list[Exception] = []
        self.closed, self.loses = True, self.active and not ends_by_signal()
        if self.active and awaited:
            self.failures.warn_of_models(awaited)
        # The end of the run is written even if the last step could not be.
        for finish in (close_step, self._close_run):
            try:
                finish()
            except Exception as exc:  # noqa: BLE001 - noted, and the rest is closed
                self.failures.note(exc)
                errors.append(exc)
        self.active = False
        return errors

    def _close_run(self) -> None:
        self._run.close(self.failures.first)

    def forget(self) -> None:
        """End in a forked child: the run belongs to the process that began it."""
        self.active = self.follows = self.loses = False
        self.closed = True
        self._run.forget()

    def fail(self, exc: Exception, close: Callable[[], None]) -> None:
        """End by an error: training goes on without the hook. Where the process follows the job's steps, it still does.

        Args:
            exc: The error. It is logged, and raised in strict mode.
            close: Closes what was recorded before, which is still worth having.
        """
        follows, self.active = self.follows, False
        self.failures.note(exc)
        close()
        self.follows = follows
        if strict():
            raise exc


def switched_on() -> bool:
    """Return whether hooks save anything: not with TENSORTRIAL=0 or USE_SMDEBUG=0."""
    return all(os.environ.get(name, "1").lower() not in ("0", "false") for name in _OFF_VARIABLES)
