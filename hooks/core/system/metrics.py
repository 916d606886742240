"""System metrics: a thread that samples them, and the run that they are saved to.

They have a clock of their own, and are therefore a run of their own, in the folder `system` of the run: its steps are
the samples. As rows of the training's steps they would add steps that training did not save, and if training hangs in a
step, all samples but the last would be lost.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tensortrial.config.save_config import SaveConfig
from tensortrial.format.record import Plan, ScalarBatch, Step
from tensortrial.format.schema import SYSTEM
from tensortrial.interrupts import Event
from tensortrial.mode import ModeKeys

from ..configuration.collections import CollectionManager
from ..configuration.options import Framework, HookOptions
from ..log import logger
from ..process.rank import Duty
from ..run_writer import RunWriter

if TYPE_CHECKING:
    from .probe import Probe

COLLECTION = "system"
_STOP_SECONDS = 10.0
"""The longest that a closing run waits for the last sample: SIGTERM leaves 20 seconds for all."""


class SystemMetrics:
    """The system metrics of one worker, from the beginning of its run to the end.

    An error is logged, and ends the samples; neither training nor its run is affected.

    Args:
        options: The options of the run.
        seconds: The time between two samples.
        newest_step: Returns the global step that training is at. It is called by another thread.

    Raises:
        MissingExtra: psutil is not installed.
    """

    def __init__(self, options: HookOptions, seconds: float, newest_step: Callable[[], int]) -> None:
        self._options, self._seconds, self._newest_step = options, seconds, newest_step
        self._thread: threading.Thread | None = None
        self._ending = Event()
        self._run: RunWriter | None = None
        self._plans: dict[str, Plan] = {}
        self._error: Exception | None = None
        from . import probe  # psutil is optional

        self._make_probe, self._versions = probe.Probe, probe.VERSIONS

    def start(self, out_dir: str, duty: Duty) -> None:
        """Begin to sample, as a worker of the job whose run is in `out_dir`."""
        self._thread = threading.Thread(
            target=self._sample_until_end,
            args=(out_dir, duty),
            name=f"tensortrial-system-{duty.worker}",
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> list[Exception]:
        """Take a last sample, and close. Return the error that ended the samples, if one did."""
        thread, self._thread = self._thread, None
        if thread is None:
            return []
        self._ending.set()
        thread.join(_STOP_SECONDS)
        return [] if self._error is None else [self._error]

    def _sample_until_end(self, out_dir: str, duty: Duty) -> None:
        failure = None
        try:
            # In this thread, because training must not wait for a driver that may take a second to answer.
            probe = self._make_probe()
            run = self._run = self._new_run(out_dir, duty)
            # Continue the samples of an earlier session.
            run.resume()
            run.claim()
            number = run.progress.global_step
            ends = False
            while not ends:
                # The last sample is taken at the end: a run that is shorter than the interval has one.
                ends = self._ending.wait(self._seconds)
                self._save(run, number, probe)
                number += 1
        except Exception as exc:  # noqa: BLE001 - logged, and nothing else ends
            failure = f"{type(exc).__name__}: {exc}"
            self._note(exc)
        self._close(failure)

    def _new_run(self, out_dir: str, duty: Duty) -> RunWriter:
        collections = CollectionManager([COLLECTION], SaveConfig(save_interval=1))
        collections.include([COLLECTION])
        options = dataclasses.replace(
            self._options,
            out_dir=f"{out_dir.rstrip('/')}/{SYSTEM}",
            on_exists="fail",
            export_tensorboard=False,
            metadata={"seconds_between_samples": self._seconds},
        )
        return RunWriter(options, Framework("none", self._versions, is_ordered=False), collections, duty)

    def _save(self, run: RunWriter, number: int, probe: Probe) -> None:
        # Training is at no step before its first one.
        values = {**({"global_step": step} if (step := self._newest_step()) >= 0 else {}), **probe.read()}
        plans = [self._plans.setdefault(name, Plan(f"{COLLECTION}/{name}", (COLLECTION,), True)) for name in values]
        batch = ScalarBatch(plans, list(map(float, values.values())), [time.time_ns()] * len(plans))
        run.put(Step(ModeKeys.GLOBAL, number, number, [batch]), closes=True)

    def _close(self, failure: str | None) -> None:
        try:
            if self._run is not None:
                self._run.close(failure)
        except Exception as exc:  # noqa: BLE001 - logged, unless the same error ended the samples
            self._note(exc)

    def _note(self, exc: Exception) -> None:
        """Log the first error."""
        if self._error is None:
            self._error = exc
            text = "the system metrics of %s end here, training and its run are not affected: %s: %s"
            logger.warning(text, self._options.out_dir, type(exc).__name__, exc, exc_info=exc)
