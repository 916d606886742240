"""The recorder: what every hook does, whatever the framework.

It counts steps, decides what of a tensor is saved when, copies it, and hands it to the writer. A framework's hook has
one and pushes into it; the recorder never calls back.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tensortrial.config.collection import CollectionKeys, check_collection_name
from tensortrial.config.reduction_config import ReductionConfig, boolean, names
from tensortrial.config.save_config import SaveConfig
from tensortrial.dtypes import Array, dtype_name, in_stored_dtype, storable
from tensortrial.errors import ConfigurationError, TrainingStopped, UnsupportedValue
from tensortrial.format.buffer_pool import BATCHED_BYTES, SMALL_BYTES, BatchBuffers, BufferPool
from tensortrial.format.record import BufferOwner, Plan, Record, ScalarBatch, Step, check_name
from tensortrial.mode import ModeKeys

from .arguments import as_nanoseconds, as_number, shown
from .collections import CollectionManager
from .failures import Failures
from .options import Framework, HookOptions
from .planner import Planner
from .rank import Duty, Rank
from .refusals import Refusals, strict
from .run_writer import RecordedRun
from .shutdown import close_at_exit, closed, watch
from .step_count import StepCount
from .switches import switched_on

logger = logging.getLogger("tensortrial.hooks")

_SM_METRICS = (CollectionKeys.SM_METRICS,)

# Captured tensors go to the writer before their step closes once there are so many bytes of them: memory stays bounded
# however large a step is, and the writer works while the step runs.
_HAND_OVER_BYTES = 4 << 20


class Recorder:
    """Records the tensors of one process into one run.

    The framework's hook calls `record` while a step is open, that is between `begin_step` and the next `begin_step`,
    `set_mode` or `close`. All methods may be called from any thread. `rank` is which of the job's processes this is, or
    a function that is called again when the run is claimed.

    With `follows`, a process that saves nothing, because `include_workers` leaves it out or after an error, counts
    steps and plans all the same: processes that gather tensors from one another have to do so at the same steps, or all
    wait for ever. `collections` are those of another recorder that this one shares.
    """

    def __init__(
        self,
        options: HookOptions,
        framework: Framework,
        rank: Rank | Callable[[], Rank],
        *,
        follows: bool = False,
        collections: CollectionManager | None = None,
    ) -> None:
        if not options.out_dir:
            raise ConfigurationError("a hook needs out_dir: where to save the run")
        self._duty = Duty(rank, options.include_workers)
        self.out_dir = os.fspath(options.out_dir)
        self.save_config = SaveConfig.parse(options.save_config)
        self.save_config.inherit(SaveConfig())
        self.save_config.set_default_interval(framework.save_interval)
        self.reduction_config = options.reduction_config or ReductionConfig()
        self.collections = collections or CollectionManager(
            framework.builtin, self.save_config, framework.collection_type, framework.save_interval
        )
        chosen = [*framework.always_saved, *names(options.include_collections)]
        self.collections.choose(chosen, options.include_regex, boolean("save_all", options.save_all))
        self.errors_of_training = framework.errors_of_training
        self.mode = ModeKeys.GLOBAL
        exports = boolean("export_tensorboard", options.export_tensorboard)
        if options.tensorboard_dir and not exports:
            logger.warning("no event files are written to tensorboard_dir: export_tensorboard=True asks for them")
        self._planner = Planner(self.collections, self.reduction_config, exports, self.refuse)
        self._run = RecordedRun(
            self.out_dir,
            self.collections,
            worker=self._duty.worker,
            num_workers=self._duty.num_workers,
            framework=framework.name,
            versions=framework.versions,
            metadata=options.metadata,
            codec=options.codec,
            flush_seconds=options.flush_seconds,
            storage_options=options.storage_options,
            tensorboard_dir=(options.tensorboard_dir or f"{self.out_dir.rstrip('/')}/tensorboard") if exports else None,
            force=boolean("force", options.force),
        )

        self._lock = threading.RLock()
        self._failures = Failures(self.out_dir)
        self._closed = False
        wanted = not boolean("dry_run", options.dry_run) and switched_on()
        self._active = wanted and self._duty.saves
        self._follows = follows and wanted
        if boolean("resume", options.resume) and (self._active or self._follows):
            self._run.resume(follows=not self._active)
        elif self._active:
            self._run.check()

        self._count = StepCount(self._run.progress)
        self._step: Step | None = None
        self._step_is_adoptable = False
        self._holds = 0
        self._copies, self._batch_buffers = BufferPool(), BatchBuffers()
        self._handed_over = 0
        self._waiting_bytes = 0
        self._refusals = Refusals()
        self.awaited: set[str] = set()
        """Models that a hook was told of, and that have not run yet."""
        self.saving = False
        """Whether anything is due at the open step. Hooks look here first: most steps save nothing."""
        if self._active:
            watch(self)

    # Steps.

    @property
    def step(self) -> Step | None:
        """The open step."""
        return self._step

    def set_mode(self, mode: ModeKeys) -> None:
        """Close the open step; the next one is counted in `mode`."""
        with self._lock:
            self._close_step()
            self.mode = ModeKeys.parse(mode)

    def begin_step(self) -> None:
        """Close the open step and begin the next one of the mode."""
        with self._lock:
            if not self.counting or (self._holds and self._step is not None):
                return
            if self._step is not None and self._step_is_adoptable:
                # Values were saved ahead of the step that now begins: it is theirs.
                self._step_is_adoptable = False
                return
            self._close_step()
            self._stop_if_asked()
            self._open_step()

    def foresee(self) -> bool:
        """Plan for the step that begins next, or for the open one, and begin none. Gives whether anything is due at it:
        for a framework that must say beforehand what it wants to see of a step, and counts it when it is over."""
        with self._lock:
            if not self._active:
                return False
            if self._step is not None:
                return self.saving
            self._stop_if_asked()
            self._start()
            return self._active and self._turn_to(self._count.next(self.mode))

    def end_step(self) -> None:
        """Close the open step, unless it is held."""
        with self._lock:
            if not self._holds:
                self._close_step()

    def start_at(self, step: int) -> None:
        """A new run begins with this step, because the model comes with as many behind it. One that has steps goes
        on after them."""
        with self._lock:
            self._count.start_at(self.mode, step)

    def withdraw_step(self) -> None:
        """Take back the open step, of which nothing was recorded: it did not happen. The next one gets its number."""
        with self._lock:
            step = self._step
            if step is None or step.records or self._handed_over or self._holds:
                return
            self._step, self.saving = None, False
            self._count.take_back(step)

    def hold_step(self) -> None:
        """Begin a step that lasts until `release_step`, whatever begins meanwhile. Inside another one it is a part of
        it."""
        with self._lock:
            self.begin_step()
            self._holds += 1

    def release_step(self) -> None:
        with self._lock:
            self._holds -= 1
            if not self._holds:
                self._close_step()

    def _open_step(self) -> None:
        self._start()
        if not self.counting:
            return
        step = self._count.next(self.mode)
        self.saving = self._turn_to(step)
        self._count.count(step)
        self._step, self._step_is_adoptable = step, False

    def _turn_to(self, step: Step) -> bool:
        """Plan for a step, with readers told. Gives whether anything is due at it."""
        if self._planner.look() and self._active:
            self._run.announce()
        return self._planner.turn_to(step)

    def next_is_due(self) -> bool:
        """Whether anything will be due at the step that begins next in this mode, as far as can be said now."""
        with self._lock:
            self.collections.complete()
            return self._active and bool(self._planner.due_at(self._count.next(self.mode)))

    def may_save(self, names: Iterable[str]) -> bool:
        """Whether a tensor of one of these names belongs to what is saved at any step."""
        return self._active and self._planner.may_save(names)

    @property
    def due(self) -> frozenset[str]:
        """The names of the collections that are due at the open step."""
        return self._planner.due

    @property
    def generation(self) -> int:
        """Grows when any collection starts to match, or to keep, something else."""
        return self._planner.generation

    def _stop_if_asked(self) -> None:
        """End the training by TrainingStopped, with the run closed, if a rule has asked for it in the run."""
        reason = self._run.reason_to_stop()
        if reason is None:
            return
        self.close()
        stopped = TrainingStopped(self.out_dir, reason)
        # A process that ends by a SystemExit says nothing by itself.
        logger.error("%s", stopped)
        raise stopped

    def _close_step(self) -> None:
        step, self._step = self._step, None
        self.saving = False
        self._step_is_adoptable = False
        if step is None or not self._run.open:
            return
        # A step without any tensor leaves no trace.
        if step.records or self._handed_over:
            # Not kept by the step, which the writer knows until it is published: their memory is to serve again before.
            records, step.records = step.records, []
            self._run.put(step, records, closes=True)
        self._handed_over = self._waiting_bytes = 0

    # Tensors.

    def plan(self, name: str) -> Plan | None:
        """What of the tensor is due at the open step; None if nothing is."""
        return self._planner.plan(name)

    def record(  # noqa: PLR0913 - one call per tensor: what is saved, and how it is named and reduced
        self,
        plan: Plan,
        value: Array,
        *,
        owned: bool = False,
        statistics: Mapping[str, float] | None = None,
        dtype: str | None = None,
        shape: tuple[int, ...] | None = None,
        ready: Callable[[], object] | None = None,
        lender: BufferOwner | None = None,
    ) -> None:
        """Keep a tensor at the open step. The array is copied, unless it is `owned`: nobody else writes to it, until
        the `lender` gets it back.

        Statistics that the hook took on the tensor's own device come with `dtype` and `shape`; `value` is then ignored
        where the plan wants no raw value. What still travels from a device comes with `ready`, which waits for it, and
        which the writer's thread calls.
        """
        if not self._active:
            return
        try:
            name = dtype_name(value.dtype)
        except UnsupportedValue as exc:
            self.refuse(plan.name, exc)
            return
        # What has memory of its own is worth another copy while it is small.
        packed = value.nbytes < (SMALL_BYTES if owned else BATCHED_BYTES) and plan.only_raw and value.size != 1
        if packed and ready is None and statistics is None:
            self._pack(plan, in_stored_dtype(value), name)
            if lender is not None:
                lender.release(value)
            return
        kept, copies = storable(value), lender
        if kept is value and not owned:
            # The one copy: training goes on to overwrite its tensors while the writer still reads them.
            kept, copies = self._copies.copy(value), self._copies
        self._add(Record(plan, kept, time.time_ns(), statistics, dtype, shape, ready, copies), kept.nbytes)

    def record_numbers(self, names: tuple[str, ...], numbers: Sequence[float]) -> None:
        """Keep those of many scalars that are due at the open step. `numbers` belong to the recorder from now on."""
        found = self._planner.plans(names)
        plans = [plan for plan in found if plan is not None]
        if len(plans) < len(found):
            numbers = [number for plan, number in zip(found, numbers, strict=True) if plan is not None]
        with self._lock:
            if self._active and self._step is not None and plans:
                self._step.records.append(ScalarBatch(plans, list(numbers), [time.time_ns()] * len(plans)))

    def save_scalar(self, name: str, value: Any, sm_metric: bool = False, timestamp: float | None = None) -> None:
        """Keep a number at the open step, or, if none is open, at the one that begins next in this mode."""
        try:
            check_name(name)
            number = as_number(value, self.errors_of_training)
            saved_at = time.time_ns() if timestamp is None else as_nanoseconds(timestamp)
        except UnsupportedValue as exc:
            self.refuse(name, exc)
            return
        with self._lock:
            if self._ready_to_save() and self._step is not None:
                plan = self._planner.explicit(name, _SM_METRICS if sm_metric else (), True)
                self._step.scalar_batch().add(plan, number, saved_at)

    def save_tensor(
        self, name: str, value: Array, collections_to_write: Iterable[str] | str = "default", owned: bool = False
    ) -> None:
        """Keep an array, which is copied unless `owned`, at the open step or the one that begins next in this mode."""
        try:
            check_name(name)
            collections = tuple(names(collections_to_write)) or (CollectionKeys.DEFAULT,)
            for collection in collections:
                check_collection_name(collection)
        except ConfigurationError as exc:
            self.refuse(name, exc)
            return
        with self._lock:
            if self._ready_to_save():
                self.record(self._planner.explicit(name, collections), value, owned=owned)

    def _pack(self, plan: Plan, value: Array, dtype: str) -> None:
        """Copy a small tensor to the others of the open step."""
        with self._lock:
            step = self._step
            if step is None:
                return
            step.add_small(self._batch_buffers, plan, value, dtype, time.time_ns())
            self._hand_over(value.nbytes)

    def _ready_to_save(self) -> bool:
        if not self._active:
            if self._closed:
                self._failures.warn_of_loss()
            return False
        if self._step is None:
            self._open_step()
            self._step_is_adoptable = not self._holds
        return self._active

    def _add(self, record: Record, nbytes: int) -> None:
        with self._lock:
            step = self._step
            if step is None:
                return
            step.records.append(record)
            self._hand_over(nbytes)

    def _hand_over(self, nbytes: int) -> None:
        """Give the open step's records to the writer, once they and `nbytes` more are enough."""
        self._waiting_bytes += nbytes
        if self._waiting_bytes >= _HAND_OVER_BYTES and self._run.open and self._step is not None:
            records, self._step.records = self._step.records, []
            self._handed_over += len(records)
            self._waiting_bytes = 0
            self._run.put(self._step, records)

    # The run.

    def _start(self) -> None:
        """Claim the run, when the first step begins."""
        self.collections.complete()
        if self._run.open:
            return
        self.collections.check()
        if self._active:
            self._duty.decide()
            self._run.become(self._duty.worker, self._duty.num_workers)
            self._active = self._duty.saves
        if self._active:
            close_at_exit(self)
            self._planner.look()
            self._run.claim()
            self._count.go_on_after(self._run.progress)

    def flush(self) -> None:
        """Publish every closed step now, and return when that is done."""
        if self._active:
            self._run.flush()

    def close(self) -> None:
        """Close the open step and the run. What is recorded afterwards is not saved. Closing twice is fine."""
        errors: list[Exception] = []
        with self._lock:
            self._follows = False
            if self._closed:
                return
            self._closed = True
            if self._active and self.awaited:
                self._failures.warn_of_models(self.awaited)
            # The end of the run is written even if the last step could not be.
            for finish in (self._close_step, self._close_run):
                try:
                    finish()
                except Exception as exc:  # noqa: BLE001 - noted, and the rest is closed
                    self._failures.note(exc)
                    errors.append(exc)
            self._active = self.saving = False
        closed(self)
        if errors and strict():
            raise errors[0]

    def _close_run(self) -> None:
        self._run.close(self._failures.first)

    def forget(self) -> None:
        """In a forked child: the run belongs to the process that began it."""
        self._lock = threading.RLock()
        self._active = self._follows = self.saving = False
        self._closed = True
        self._step = None
        self._run.forget()

    # Failures.

    def fail(self, exc: Exception) -> None:
        """Turn off after an error inside: training goes on without. In strict mode the error is raised."""
        step, saving, follows = self._step, self.saving, self._follows
        self._active = False
        self._failures.note(exc)
        # What was recorded before is still worth having.
        self.close()
        if follows:
            self._step, self.saving, self._follows = step, saving, True
        if strict():
            raise exc

    def refuse(self, name: str, exc: ConfigurationError) -> None:
        """Leave out one tensor that cannot be stored, and say so once; the others go on. In strict mode it is
        raised."""
        self._refusals.add(exc, shown(name), "tensor %r is not saved: %s", name, exc)

    def refuse_call(self, method: str, exc: Exception) -> None:
        """Leave out a call with arguments that make no sense, and say so once. In strict mode the error is raised."""
        self._refusals.add(exc, f"{method}: {exc}", "%s saved nothing: %s", method, exc)

    @property
    def worker(self) -> str:
        """The name of the worker that this records as."""
        return self._run.worker

    @property
    def active(self) -> bool:
        """Whether this process saves anything: not in a dry run, of a worker left out, switched off, failed or
        closed."""
        return self._active

    @property
    def closed(self) -> bool:
        """Whether the run is closed: nothing more is ever saved."""
        return self._closed

    @property
    def counting(self) -> bool:
        """Whether this process keeps to the job's steps, although it may save nothing."""
        return self._active or self._follows
