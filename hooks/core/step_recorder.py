"""The steps of a recorder: counts them, decides what is due at each, and passes what was recorded to the writer."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from tensortrial.config.collection import CollectionKeys
from tensortrial.config.reduction_config import ReductionConfig, check_reduction_config, names
from tensortrial.config.save_config import GROWING, GROWING_STEPS, SaveConfig
from tensortrial.errors import ConfigurationError, RunExists, TrainingStopped, WorkerClaimed, shown
from tensortrial.format.record import BatchBuffers, Step
from tensortrial.interrupts import delayed_ctrl_c
from tensortrial.mode import ModeKeys
from tensortrial.truth import is_switched_on

from .called_steps import CalledSteps, step_number
from .configuration.collections import CollectionManager, define_health
from .configuration.options import Framework, HookOptions, check_on_exists, parse_interval
from .configuration.planner import Planner
from .configuration.sagemaker import CheckpointSteps
from .failures import Failures, strict
from .log import logger
from .process.rank import Duty, Rank
from .process.shutdown import close_at_exit, closed, ends_by_signal, watch
from .run_writer import RunWriter
from .step_clock import StepClock
from .system.metrics import SystemMetrics

# A run of fewer steps is a trial, for which no warning is needed.
_MANY_STEPS = 10


class StepRecorder:
    """The part of a recorder that handles steps and the run, but no tensors. See `Recorder`."""

    def __init__(
        self,
        options: HookOptions,
        framework: Framework,
        rank: Rank | Callable[[], Rank],
        *,
        follows: bool = False,
        collections: CollectionManager | None = None,
    ) -> None:
        if not isinstance(options.out_dir, str | os.PathLike) or not str(options.out_dir).strip():
            raise ConfigurationError(f"out_dir must be a folder or URL where to save the run, got {options.out_dir!r}")
        duty = Duty(rank, options.include_workers)
        check_on_exists(options.on_exists, duty.num_workers)
        self.options = options
        by_default = () if options.chooses else tuple(framework.by_default)
        chooses_nothing = bool(by_default) and options.save_config is None
        self.save_config = SaveConfig.parse({"save_interval": GROWING} if chooses_nothing else options.save_config)
        self.save_config.inherit(SaveConfig())
        self.save_config.set_default_interval(framework.save_interval)
        check_reduction_config(options.reduction_config)
        self.reduction_config = options.reduction_config or ReductionConfig()
        self.collections = collections or CollectionManager(
            framework.builtin, self.save_config, framework.collection_type, framework.save_interval
        )
        if collections is None and CollectionKeys.HEALTH in framework.builtin:
            define_health(self.collections)
        chosen = [*framework.always_saved, *by_default, *names(options.include_collections, "include_collections")]
        self.collections.choose(chosen, options.include_regex, options.save_all)
        at_every_step = self.save_config.without_growth()
        self.grows = at_every_step != self.save_config
        """True if the interval grows. Losses, and others that are always saved, are then saved at every step."""
        for name in framework.always_saved if self.grows and collections is None else ():
            self.collections.require(name).save_config = at_every_step.copy()
        saved = f"{', '.join(framework.always_saved)} at every step; {', '.join(by_default)} at {GROWING_STEPS}"
        self.saved_by_default = saved if chooses_nothing else ""
        """The text that says what is saved by default; empty if the arguments make a choice."""
        self.errors_of_training = framework.errors_of_training
        if options.tensorboard_dir and not options.export_tensorboard:
            logger.warning("no event files are written to tensorboard_dir: pass export_tensorboard=True as well")
        self.planner = Planner(self.collections, self.reduction_config, options.export_tensorboard, self.refuse)
        self.run = RunWriter(options, framework, self.collections, duty)
        wanted = not options.dry_run and switched_on()
        self.active = wanted and duty.saves
        """True while this process saves. False in a dry run, and if it is left out, switched off, failed or closed."""
        self.follows = follows and wanted
        """True if this process follows the job's steps even when it saves nothing."""
        self.closed = False
        """True once the run is closed: nothing more is ever saved."""
        self._loses = False
        self.copied_from = ""
        """The out_dir of the original if the hook is a copy, until that was logged."""
        resumes = options.resume or options.on_exists == "resume"
        if resumes and self.counting:
            self.run.resume(follows=not self.active)
        elif self.active:
            self.run.check()
        self.failures = Failures(self.run.out_dir)
        self._lock = threading.RLock()
        self._threads: set[threading.Thread] = set()
        self.clock = StepClock(self.run.progress, CheckpointSteps(self.active and not duty.rank.number))
        self.called_steps = CalledSteps(self.clock, self.run, self._begin_called)
        # Replicas share a process, and the first one samples it.
        seconds = parse_interval(options.system_metrics) if collections is None else None
        self._system = SystemMetrics(options, seconds, self._newest_step) if self.active and seconds else None
        self._enqueued = self._waiting_bytes = 0
        # By mode: the steps of this session, and those at which something was due.
        self._counted: dict[str, list[int]] = {}
        self.pending_models: set[str] = set()
        """The names of models that were registered and have not run yet."""
        self.saving = False
        """True if anything is due at the open step. Hooks check this first: most steps save nothing."""
        if self.active:
            if self.saved_by_default and collections is None:
                logger.info("saved to %s: %s", self.run.out_dir, self.saved_by_default)
            watch(self)
            self.run.environment.read()

    def warn_if_copy(self) -> None:
        """Log, once, that the hook is a copy and saves nothing. Called where a job begins to use its hook."""
        out_dir, self.copied_from = self.copied_from, ""
        if out_dir:
            logger.warning(
                "nothing is saved by this hook: it is a copy of the hook of %s, made by clone, deepcopy or pickle, and "
                "would write into the same run; construct a hook with its own out_dir in the process that trains",
                out_dir,
            )

    # Steps.

    def set_mode(self, mode: ModeKeys) -> None:
        """Close the open step; the next one is counted in `mode`."""
        with self._lock:
            self._close_step()
            mode = ModeKeys.parse(mode)
            self.clock.set_mode(mode)
            # One step may be of numbers that describe the training.
            if mode is ModeKeys.TRAIN and "TRAIN" not in self._counted and self._counted.get("GLOBAL", [0])[0] > 1:
                self.failures.warn_of_two_modes()

    def begin_step(self) -> None:
        """Close the open step and begin the next one of the mode."""
        self._threads.add(threading.current_thread())
        with self._lock:
            if not self.counting or self.clock.continues():
                return
            self._close_step()
            if self.clock.mode not in self.clock.numbered:
                self._open_step()

    def plan_ahead(self) -> bool:
        """Plan for the open step or, if none is open, for the next one, without beginning it.

        For a framework that must say beforehand which values of a step it needs, and counts a step when it is over.

        Returns:
            True if anything is due at that step.
        """
        with self._lock:
            if not self.active:
                return False
            if self.clock.step is not None:
                return self.saving
            self._stop_if_requested()
            self._start()
            begins = self.active and self.clock.mode not in self.clock.numbered
            return begins and self._plan_for(self.clock.next(self.clock.mode))

    def end_step(self) -> None:
        """Close the open step, unless it is held."""
        with self._lock:
            if not self.clock.held:
                self._close_step()

    def start_at(self, step: int) -> None:
        """Begin a new run with this step, because the model was trained for that number of steps before.

        A run that has steps continues after them.
        """
        with self._lock:
            if self.run.restarts and not self.run.open:
                self.run.restarts = False
                self.run.resume()
                self.clock.continue_after(self.run.progress)
            self.clock.start_at(self.clock.mode, step)

    def resume_at(self, step: int, mode: ModeKeys | str | None) -> None:
        """Continue at this step of a mode, and supersede the steps that were saved from it on.

        Raises:
            ConfigurationError: It is not the number of a step, or the run has no steps, or a step is held.
        """
        number = step_number(step)
        with self._lock:
            if not self.counting:
                return
            if self.clock.held:
                raise ConfigurationError("a step is open, and later steps would become a part of it: end it first")
            if not self.run.resumes and self._newest_step() < 0:
                raise ConfigurationError("only a run that is continued has earlier steps: pass resume=True to the hook")
            self._close_step()
            mode = self.clock.mode if mode is None else ModeKeys.parse(mode)
            if back_to := self.clock.go_back(mode, number):
                self.run.supersede_from(back_to)
            else:
                self.clock.start(self.run.resume_at(mode, number))

    def withdraw_step(self) -> None:
        """Take back the open step if nothing of it was recorded: it did not happen. The next one gets its number."""
        with self._lock:
            step = self.clock.step
            if step is None or step.records or self._enqueued or self.clock.held:
                return
            self.saving = False
            self.clock.withdraw()

    def hold_step(self, number: Any = None, mode: Any = None) -> None:
        """Begin a step that lasts until `release_step`. Steps that begin meanwhile become a part of it.

        Inside another held step, it becomes a part of that one.

        Args:
            number: Its number in the mode; None for the next one. From here on only steps that are held are counted in
                the mode.
            mode: The mode of this step; None for the current one.
        """
        self._threads.add(threading.current_thread())
        with self._lock:
            try:
                number = None if number is None else step_number(number)
                mode = None if mode is None else ModeKeys.parse(mode)
            except ConfigurationError as exc:
                # The step is begun nevertheless: what runs in it belongs together.
                self.refuse_call("step", exc)
                number = mode = None
            if self.clock.held:
                self._check_nested(number, mode)
            elif self.counting:
                self._begin_held(number, mode)
            self.clock.hold()

    def _begin_held(self, number: int | None, mode: ModeKeys | None) -> None:
        clock = self.clock
        ahead = clock.step if clock.is_ahead else None
        mode = mode or clock.mode
        following = clock.mode_steps[mode] if ahead is None or ahead.mode is not mode else ahead.mode_step
        if number is not None and number < following:
            self.refuse_call(
                "step",
                f"step {number} of mode {mode.name} begins after step {following - 1}, and steps go forward only; it "
                f"is counted as step {following}. To save at a past step, pass step= to save_scalar or log",
            )
            number = following
        if mode is not clock.mode:
            self._close_step()
            clock.select(mode)
        if number is not None:
            clock.numbered.add(mode)
        if ahead is not None and clock.step is ahead and number in (None, ahead.mode_step):
            clock.continues()
            return
        self._close_step()
        self._open_step(number)

    def _check_nested(self, number: int | None, mode: ModeKeys | None) -> None:
        step = self.clock.step
        if step is None or (number in (None, step.mode_step) and mode in (None, step.mode)):
            return
        inner = " ".join(str(each) for each in ("step", number, mode and f"of mode {mode.name}") if each is not None)
        self.refuse_call(
            "step",
            f"{inner} begins inside step {step.mode_step} of mode {step.mode.name}, and becomes a part of it; end that "
            "one first",
        )

    def release_step(self) -> None:
        """End what `hold_step` began, and close the step unless it is still held."""
        with self._lock:
            if self.clock.release():
                self._close_step()

    def _begin_called(self, mode: ModeKeys, number: int | None) -> Step | None:
        """Begin the next step, or a later one, for values that are saved before it runs. Return the step.

        A step of another mode is counted, but not opened.
        """
        if mode is not self.clock.mode and number is not None:
            self._stop_if_requested()
            return self.clock.skip_to(mode, number)
        self._close_step()
        self._open_step(number, is_ahead=not self.clock.held)
        return self.clock.step

    def _open_step(self, number: int | None = None, is_ahead: bool = False) -> None:
        self._stop_if_requested()
        self._start()
        if not self.counting:
            return
        step = self.clock.next(self.clock.mode, number)
        self.saving = self._plan_for(step)
        self.clock.open(step, is_ahead)
        self.called_steps.open(step)

    def _plan_for(self, step: Step) -> bool:
        """Plan for a step, and publish changed collections for readers. Return whether anything is due at it."""
        if (self.planner.refresh() or self.run.environment.is_new) and self.active:
            self.run.announce()
        return self.planner.select(step)

    def next_due(self) -> frozenset[str]:
        """Return the collections that are due at the next step of this mode, by the present configuration."""
        with self._lock:
            self.collections.complete()
            return self.planner.due_at(self.clock.next(self.clock.mode)) if self.active else frozenset()

    def may_save(self, names: Iterable[str]) -> bool:
        """Return whether a tensor of one of these names is saved at some step."""
        return self.active and self.planner.may_save(names)

    def _stop_if_requested(self) -> None:
        """Close the run and raise TrainingStopped, if a rule has stored a request to stop in the run."""
        reason = self.run.reason_to_stop()
        if reason is not None:
            self.close()
            error = TrainingStopped(self.run.out_dir, reason)
            logger.error("%s", error)  # Python prints nothing for a SystemExit
            raise error

    def _close_step(self) -> None:
        step, saving, self.saving = self.clock.step, self.saving, False
        # A step without any tensor leaves no trace. One whose closing Ctrl-C interrupts is open, and closed later.
        if saved := step is not None and self.run.open and (step.records or self._enqueued):
            self.run.put(step, closes=True)
            self.clock.last_saved = step
        self._enqueued = self._waiting_bytes = 0
        self.clock.close()
        if step is not None:
            counted = self._counted.setdefault(step.mode.name, [0, 0])
            counted[0] += 1
            counted[1] += saving
            if counted[0] == 1:  # not before: a call of the step may fill a collection
                self.collections.warn_of_empty()
        if saved and self.planner.in_training:
            self.collections.warn_of_unmatched(self.planner.due, self.planner.tensor_names)

    def _join(self) -> None:
        """Join the run of the job without a step, so that readers do not wait for this worker."""
        # After an error before the first step nothing is left, so that the program can begin the run when it works.
        if self.active and not self.run.open and sys.exc_info()[0] is None and self.run.may_join():
            with suppress(RunExists, WorkerClaimed):  # a process that this one has launched is the worker
                self._start()

    def _close_steps(self) -> None:
        self.active = False
        self._close_step()
        for mode, (steps, due) in self._counted.items():
            if due == 1 and steps >= _MANY_STEPS and self.planner.has_planned:
                newest = self.clock.newest()[ModeKeys[mode]]
                interval = self.save_config.get_save_config(ModeKeys[mode]).interval_at(newest)
                self.failures.warn_of_short_run(mode, steps, interval)
        if self.run.open:
            self.called_steps.close()
        self.run.steps = self.clock.num_begun

    def _close_run(self) -> None:
        vars(self).pop("_batch_buffers", None)  # the next run of the process uses their memory
        self.run.close(self.failures.first)

    # The run.

    def _start(self) -> None:
        """Claim the run, when the first step begins."""
        self.collections.complete()
        if self.run.open:
            return
        if self.active:
            self.run.duty.decide()
            self.active = self.run.duty.saves
        if self.active:
            with delayed_ctrl_c():  # a claim that it interrupts leaves a run that is never ended
                close_at_exit(self)
                self.planner.refresh()
                self.run.claim()
                self.clock.continue_after(self.run.progress)
                self._batch_buffers = BatchBuffers()
                if self._system is not None:
                    self._system.start(self.run.out_dir, self.run.duty)

    def _newest_step(self) -> int:
        return self.clock.newest()[ModeKeys.GLOBAL]

    def flush(self) -> None:
        """Publish every closed step now, and return when that is done."""
        if self.active:
            self.run.flush()

    def close(self) -> None:
        """Close the open step and the run: nothing is saved afterwards. Another call closes what Ctrl-C left open."""
        errors: list[Exception] = []
        with self._lock:
            self.follows = False
            if self.closed and not self.run.open:
                return
            # No warning of lost values for a hook that saved nothing anyway, nor for a process that a signal ends.
            self.closed, self._loses = True, self._loses or (self.active and not ends_by_signal())
            if self.active and self.pending_models:
                self.failures.warn_of_models(self.pending_models)
            # The end of the run is written even if the last step could not be.
            for finish in (self._join, self._close_steps, self._close_run):
                try:
                    finish()
                except Exception as exc:  # noqa: BLE001 - noted, and the rest is closed
                    self.failures.note(exc)
                    errors.append(exc)
        # After the run, and without the lock: a sample may take long on a machine in trouble.
        errors += [] if self._system is None else self._system.stop()
        closed(self)
        if errors and strict():
            raise errors[0]

    def forget(self) -> None:
        """Save nothing in a forked child: the run belongs to the process that began it."""
        self._lock = threading.RLock()
        self.active = self.follows = self.saving = self._loses = False
        self.closed = True
        self.clock.withdraw()
        self.run.forget()

    # Failures.

    def fail(self, exc: Exception) -> None:
        """Turn off after an error: training goes on without the hook. In strict mode the error is raised.

        The steps recorded before are still published. A process that follows the job's steps goes on to do so, because
        other processes wait for it at each tensor that they gather.
        """
        step, saving, follows = self.clock.step, self.saving, self.follows
        self.active = False
        self.failures.note(exc)
        self.close()
        if follows:
            self.follows, self.clock.step, self.saving = True, step, saving
        if strict():
            raise exc

    def refuse(self, name: str, exc: ConfigurationError) -> None:
        """Leave out one tensor that cannot be stored, and log that once. In strict mode the error is raised."""
        text = name if isinstance(name, str) else shown(name)
        self.failures.refuse(exc, text, "tensor %r is not saved: %s", text, exc)

    def refuse_call(self, method: str, reason: Exception | str) -> None:
        """Leave out a call with wrong arguments. Log that once, whatever its numbers, or raise it in strict mode."""
        exc = ConfigurationError(reason) if isinstance(reason, str) else reason
        # A digit in a name is no number.
        key = re.sub(r"(?<!\w)[\d.]+(e[+-]?\d+)?", "", f"{method} {exc}")
        self.failures.refuse(exc, key, "%s had no effect: %s", method, exc)

    @property
    def in_other_threads(self) -> bool:
        """True if another thread has begun steps and still runs.

        A framework's own threads, which Python knows as dummy threads that never end, do so for the thread that trains.
        """
        others = self._threads - {threading.current_thread()}
        return any(each.is_alive() and not isinstance(each, threading._DummyThread) for each in others)  # noqa: SLF001

    @property
    def counting(self) -> bool:
        """Return whether this process keeps to the job's steps, although it may save nothing."""
        return self.active or self.follows


def switched_on() -> bool:
    """Return whether hooks save anything: not with TENSORTRIAL=0 or USE_SMDEBUG=0."""
    return all(is_switched_on(name, default=True) for name in ("TENSORTRIAL", "USE_SMDEBUG"))
