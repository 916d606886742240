"""What the simulated processes do: train, follow the run, compact it, mark it as ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import numpy as np

from simulation.model import Array, Model, Saved
from simulation.scheduler import Killed
from simulation.world import World
from support.internals import claim_of, failure_of, resumes, worker_and_session
from tensortrial import errors
from tensortrial.errors import RunInUse, TensorTrialError, UnavailableError
from tensortrial.hooks.core.base_hook import BaseHook
from tensortrial.hooks.core.configuration.options import Framework, HookOptions
from tensortrial.hooks.core.process import shutdown
from tensortrial.hooks.core.process.rank import Rank
from tensortrial.hooks.core.recorder import Recorder
from tensortrial.maintenance.compaction import compact
from tensortrial.maintenance.repair import repair
from tensortrial.mode import ModeKeys
from tensortrial.read.opening import create_trial
from tensortrial.read.trial import Trial

_RECOVERY_SECONDS = 15.0
"""How long after a failure of its storage a reader may lack something: claims are read again every ten seconds."""


class Raised(AssertionError):
    """A call raised what it must not raise."""


class Hook(BaseHook):
    """A hook of no framework, of a worker of a job."""

    def __init__(self, options: HookOptions, rank: Rank) -> None:
        self.recorder = Recorder(options, Framework("none"), rank)


@dataclass(frozen=True)
class Training:
    """What a worker does."""

    rank: int = 0
    size: int = 1
    steps: int = 3
    resume: bool = False
    force: bool = False
    resume_at: int | None = None
    """The step of a checkpoint, in the first mode, to which a resumed job goes back."""
    flush_seconds: float | None = None
    codec: str = "none"
    durable: bool = False
    flush_every: int = 0
    pause_seconds: float = 0.5
    modes: tuple[ModeKeys, ...] = ()
    """The modes of the steps, which are the same in all workers of a job."""
    end: str = "close"
    """How it ends: "close", "kill", or "hang": it does nothing more until it is killed."""


class Worker:
    """A process that trains."""

    def __init__(self, world: World, model: Model, training: Training, rng: Random) -> None:
        self._world, self._model, self._training, self._rng = world, model, training, rng
        self._steps: list[Saved] = []

    def run(self) -> None:
        hook = self._hook()
        if hook is None:
            return
        self._world.scheduler.process.at_end.append(lambda: shutdown.closed(hook.recorder))
        try:
            self._go_back(hook)
            self._train(hook)
        except Exception as exc:
            raise Raised(f"a call of the hook raised {exc!r}") from exc
        self._check_failure(failure_of(hook.recorder))

    def _check_failure(self, failure: str | None) -> None:
        """Check that an error that has turned the hook off is one of this project, and has a cause."""
        kind = getattr(errors, (failure or "").partition(":")[0], None)
        if failure is not None and (kind is None or not issubclass(kind, TensorTrialError)):
            raise Raised(f"the hook is off after an error of another project: {failure}")
        disturbed = self._world.scheduler.process.faults or self._model.torn
        if kind in (errors.StorageError, errors.CorruptFile, errors.MissingChunk) and not disturbed:
            raise Raised(f"the hook is off, and nothing had failed: {failure}")

    def _hook(self) -> Hook | None:
        training = self._training
        options = HookOptions(
            "run",
            include_workers="all",
            resume=training.resume,
            force=training.force,
            flush_seconds=training.flush_seconds,
            codec=training.codec,
            durable=training.durable,
        )
        for _ in range(4):
            try:
                hook = Hook(options, Rank(training.rank, training.size))
            except TensorTrialError:
                # It may be in use until a lease has run out, or be damaged; or the storage fails.
                self._world.scheduler.sleep(40.0)
            else:
                return hook
        return None

    def _go_back(self, hook: Hook) -> None:
        step, modes = self._training.resume_at, self._training.modes
        if step is not None and resumes(hook.recorder):
            if modes:
                hook.set_mode(modes[0])
            hook.resume_at(step)

    def _train(self, hook: Hook) -> None:
        training, sleep = self._training, self._world.scheduler.sleep
        for number in range(training.steps):
            sleep(training.pause_seconds * self._rng.random())
            if training.modes:
                hook.set_mode(training.modes[number % len(training.modes)])
            self._step(hook)
            if training.flush_every and number % training.flush_every == 0:
                closed = list(self._steps)
                hook.flush()
                self._publish(hook, closed)
        if training.end == "hang":
            sleep(self._rng.choice([10.0, 200.0]))
        if training.end == "close":
            hook.close()
            if failure_of(hook.recorder) is None:
                self._model.published(self._steps)

    def _publish(self, hook: Hook, closed: list[Saved]) -> None:
        if hook.recorder.active:
            self._model.published(closed)
            claimed = claim_of(hook.recorder)
            if claimed is not None and not self._world.scheduler.process.faults:
                self._model.has_claimed(claimed)

    def _step(self, hook: Hook) -> None:
        saved = None
        with hook.step():
            step = hook.recorder.clock.step
            if step is not None and hook.recorder.active:
                worker, session = worker_and_session(hook.recorder)
                process = self._world.scheduler.process.number
                saved = Saved(worker, session, process, step.global_step, step.mode.name, step.mode_step)
                self._model.add(saved)
                self._steps.append(saved)
                self._save(hook, saved)
                # It may be published as soon as the block ends, and not if the hook is off by then.
                saved.closed = True

    def _save(self, hook: Hook, saved: Saved) -> None:
        mark = saved.process * 1_000_003 + saved.global_step * 1009
        values: dict[str, Array] = {"loss": np.array(mark + 0.5)}
        if saved.global_step % 3:
            values["w"] = np.arange(3, dtype="float32") + np.float32(mark % 65_536)
        if saved.global_step % 2:
            values["big"] = np.arange(300, dtype="int64") + mark
        saved.values.update(values)
        for name, value in values.items():
            if name == "loss":
                hook.save_scalar(name, float(value))
            else:
                hook.save_tensor(name, value)


class Reader:
    """A process that reads the run, now and then."""

    def __init__(self, world: World, model: Model, rng: Random, looks: int, pause_seconds: float, audits: bool) -> None:
        self._world, self._model, self._rng = world, model, rng
        self._looks, self._pause_seconds, self._audits = looks, pause_seconds, audits
        self._trial: Trial | None = None
        self._disturbed_at = -1e9
        self._had_ended = False

    def run(self) -> None:
        try:
            for _ in range(self._looks):
                self._world.scheduler.sleep(self._pause_seconds * self._rng.random())
                self.look()
        finally:
            if self._trial is not None:
                self._trial.close()

    def look(self) -> None:
        """Read everything and compare, by a trial that stays open."""
        world, process = self._world, self._world.scheduler.process
        faults, expected = process.faults, self._model.expected(self._had_ended)
        recovered = world.scheduler.now - self._disturbed_at > _RECOVERY_SECONDS
        superseded = self._model.superseded(self._had_ended)
        try:
            if self._trial is None:
                self._trial = create_trial("run")
            seen, found = self._model.look(self._trial)
            self._had_ended = seen.ended
            if recovered and faults == process.faults:
                self._model.check_kept(seen, found, expected)
                self._model.check_superseded(found, superseded)
                if self._audits:
                    self._model.check_rows(self._trial, seen)
                    self._model.check_ends(seen)
                    self._model.check_bytes(self._trial)
        except (TensorTrialError, FileNotFoundError) as exc:
            check_error(exc, world, self._model, recovered and faults == process.faults, has_run=bool(expected))
        except Exception as exc:
            if not process.alive:
                raise Killed from exc  # an engine does not let a BaseException through
            raise
        finally:
            if faults != process.faults:
                self._disturbed_at = world.scheduler.now


def check_error(exc: Exception, world: World, model: Model, is_undisturbed: bool, has_run: bool) -> None:
    """Raise what a reader must not raise: any error of another project, and any without a cause."""
    if not world.scheduler.process.alive:
        raise Killed from exc
    if not isinstance(exc, TensorTrialError):
        raise Raised(f"a reader raised {exc!r}") from exc
    opened = has_run or isinstance(exc, UnavailableError)
    if is_undisturbed and opened and not model.torn:
        raise Raised(f"a reader raised {exc!r}, and nothing had failed") from exc


def compactor(
    world: World, model: Model, delete_older_than: float, times: int, pause_seconds: float
) -> Callable[[], None]:
    """Return what a process does that compacts the run a few times."""

    def run() -> None:
        for _ in range(times):
            world.scheduler.sleep(pause_seconds)
            process = world.scheduler.process
            faults = process.faults
            try:
                compact("run", delete_older_than=delete_older_than)
            except (TensorTrialError, FileNotFoundError) as exc:
                has_run = bool(model.expected())
                check_error(exc, world, model, faults == process.faults, has_run=has_run)

    return run


def repairer(world: World, model: Model, delete_older_than: float, pause_seconds: float = 0.0) -> Callable[[], None]:
    """Return what a process does that repairs the run."""

    def run() -> None:
        world.scheduler.sleep(pause_seconds)
        process = world.scheduler.process
        faults = process.faults
        try:
            repair("run", delete_older_than=delete_older_than)
        except RunInUse:
            pass
        except (TensorTrialError, FileNotFoundError) as exc:
            has_run = bool(model.expected())
            check_error(exc, world, model, faults == process.faults, has_run=has_run)

    return run


def marker(world: World, model: Model, worker: str | None) -> Callable[[], None]:
    """Return what a process does that marks a worker, or all of the job, as ended."""

    def run() -> None:
        model.marked = True
        process = world.scheduler.process
        faults = process.faults
        try:
            trial = create_trial("run")
            trial.mark_ended(worker)
            trial.close()
        except (TensorTrialError, FileNotFoundError) as exc:
            check_error(exc, world, model, faults == process.faults, has_run=bool(model.expected()))

    return run
