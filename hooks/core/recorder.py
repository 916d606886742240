"""The recorder: the part of a hook that is the same for all frameworks.

It counts steps, decides what of a tensor is saved and when, copies the tensor, and passes it to the writer. A
framework's hook has one and pushes into it; the recorder never calls the hook.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from tensortrial.config.collection import CollectionKeys, check_collection_name
from tensortrial.config.reduction_config import boolean, names
from tensortrial.dtypes import Array, dtype_name, in_stored_dtype, storable
from tensortrial.errors import ConfigurationError, UnsupportedValue
from tensortrial.format.buffer_pool import BATCHED_BYTES, BUFFERS, SMALL_BYTES
from tensortrial.format.record import BufferOwner, Plan, Record, ScalarBatch, Step, check_name
from tensortrial.mode import ModeKeys

from .called_steps import step_number
from .step_recorder import StepRecorder
from .user_values import as_nanoseconds, as_number

# Once the captured tensors of the open step have this many bytes, they go to the writer before the step closes: memory
# stays bounded however large a step is, and the writer works while the step runs.
_ENQUEUE_BYTES = 4 << 20


class Recording(Protocol):
    """An object whose recorder is turned off after an error."""

    @property
    def recorder(self) -> Recorder: ...


_S = TypeVar("_S", bound=Recording)
_P = ParamSpec("_P")


def guarded(method: Callable[Concatenate[_S, _P], None]) -> Callable[Concatenate[_S, _P], None]:
    """Keep the errors of a hook's method away from training.

    An error turns the hook off. A call with wrong arguments is left out instead, and the hook stays on. Only errors of
    training itself are raised.
    """
    signature = inspect.signature(method)

    def call(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as exc:
            if isinstance(exc, self.recorder.errors_of_training):
                raise
            if isinstance(exc, ConfigurationError) or (isinstance(exc, TypeError) and not fits(args, kwargs, self)):
                self.recorder.refuse_call(method.__name__.lstrip("_"), exc)
            else:
                self.recorder.fail(exc)

    def fits(args: Any, kwargs: Any, self: _S) -> bool:
        try:
            signature.bind(self, *args, **kwargs)
        except TypeError:
            return False
        return True

    functools.update_wrapper(call, method)
    return call


class Recorder(StepRecorder):
    """Records the tensors of one process into one run.

    The framework's hook calls `record` while a step is open, that is between `begin_step` and the next `begin_step`,
    `set_mode` or `close`. All methods may be called from any thread.

    Args:
        options: The arguments of the hook.
        framework: The framework, and what it saves by default.
        rank: The rank of this process, or a function that returns it and is called again when the run is claimed.
        follows: Count steps and plan even in a process that saves nothing, because `include_workers` leaves it out or
            after an error. Processes that gather tensors from one another must do so at the same steps, or all of them
            wait forever.
        collections: The collections of another recorder, to share them.

    Raises:
        ConfigurationError: An option has an invalid value.
        RunExists: Another run is in out_dir.
    """

    def record(
        self,
        plan: Plan,
        value: Array,
        *,
        owned: bool = False,
        owner: BufferOwner | None = None,
        step: Step | None = None,
    ) -> None:
        """Keep a tensor at the open step, or at another one.

        Args:
            plan: The plan of the tensor.
            value: The tensor.
            owned: True if nothing else changes `value`, so that it need not be copied.
            owner: The owner of an owned value's memory, which uses it again once the value has been written.
            step: The step to keep it at; None for the open one.
        """
        if not self.active:
            return
        try:
            name = dtype_name(value.dtype)
        except UnsupportedValue as exc:
            self.refuse(plan.name, exc)
            return
        stored = value if value.dtype.isbuiltin else in_stored_dtype(value)
        nbytes = stored.nbytes
        # A value with memory of its own is copied once more if it is small: that is quicker than to keep it apart.
        if plan.only_raw and nbytes < (SMALL_BYTES if owned else BATCHED_BYTES) and value.size != 1:
            with self._lock:
                step = step or self._due_step
                if step is not None:
                    spec = plan.spec(name, stored.shape, nbytes)
                    step.add_small(self._batch_buffers, spec, stored, time.time_ns())
                    self._count_bytes(step, nbytes)
            if owner is not None:
                owner.release(value)
            return
        kept = storable(stored)
        if kept is value and not owned:
            # The only copy, because training overwrites its tensors while the writer still reads them.
            kept, owner = BUFFERS.acquire(value), BUFFERS
        self.add(Record(plan, kept, time.time_ns(), owner=owner), step)

    @property
    def _due_step(self) -> Step | None:
        """The open step; None if nothing is due at it, because another thread has begun a step since planning."""
        return self.clock.step if self.saving else None

    def add(self, record: Record, step: Step | None = None) -> None:
        """Keep a record, whose value nothing else changes, at the open step or at another one."""
        nbytes = 8 if isinstance(record.value, float) else record.value.nbytes
        with self._lock:
            step = step or self._due_step
            if step is not None:
                step.records.append(record)
                self._count_bytes(step, nbytes)

    @contextmanager
    def saving_at(self, step: Any = None, mode: Any = None, *, plans: bool = True) -> Iterator[Step | None]:
        """Save at the step of a call inside the block. Other threads wait.

        Args:
            step: The step; None for the open one or, if none is open, the one that begins next in the mode.
            mode: The mode that the step is counted in; None for the current one.
            plans: Make the planner plan for that step.

        Yields:
            The step, for `record`; None if nothing is saved.

        Raises:
            ConfigurationError: `step` or `mode` is invalid.
        """
        with self._lock:
            at = self._step_to_save_into(step, mode)
            if at is None:
                yield None
                return
            if plans:
                self.replan(at, step)
            try:
                yield at
            finally:
                if plans and self.clock.step is not None and self.clock.step is not at:
                    self.replan(self.clock.step)
                self.called_steps.enqueue(at)

    def replan(self, step: Step, number: Any = None) -> None:
        """Plan for a step after collections have changed; `number` is that of a step that has not begun, if known."""
        if step.mode_step < 0:
            step = Step(step.mode, self.clock.mode_steps[step.mode] if number is None else step_number(number), 0)
        self.saving = self._plan_for(step)

    def scalar_plan(self, name: str, sm_metric: bool) -> Plan:
        """Return the plan of a number that the user saves by a call.

        Raises:
            UnsupportedValue: It cannot have this name.
        """
        return self.planner.explicit(name, (CollectionKeys.SM_METRICS,) if sm_metric else (), True)

    def tensor_plan(self, name: str, collections_to_write: Iterable[str] | str) -> Plan:
        """Return the plan of a tensor that the user saves by a call, with the names of its collections.

        Raises:
            ConfigurationError: It, or a collection, cannot have this name.
        """
        if type(name) is not str or not name:  # the text itself is checked once, as its plan is made
            check_name(name)
        if isinstance(collections_to_write, str):
            collections = _collections_in(collections_to_write)
        else:
            collections = _collections(collections_to_write)
        return self.planner.explicit(name, collections)

    def record_numbers(self, names: tuple[str, ...], numbers: Sequence[float]) -> None:
        """Keep the due ones of many scalars at the open step.

        The caller must not change `numbers` afterwards.
        """
        found = self.planner.plans(names)
        plans = [plan for plan in found if plan is not None]
        if len(plans) < len(found):
            numbers = [number for plan, number in zip(found, numbers, strict=True) if plan is not None]
        with self._lock:
            step = self._due_step
            if self.active and step is not None and plans:
                step.records.append(ScalarBatch(plans, list(numbers), [time.time_ns()] * len(plans)))

    def save_scalars(
        self,
        numbers: Iterable[tuple[str, Any]],
        sm_metric: bool = False,
        timestamp: float | None = None,
        step: Any = None,
        mode: Any = None,
    ) -> None:
        """Keep numbers at a step; see `BaseHook.save_scalar`. Raises ConfigurationError for a bad step or mode."""
        kept, saved_at, sm_metric = dict[str, float](), time.time_ns(), boolean("sm_metric", sm_metric)
        try:
            for name, value in numbers:
                try:
                    check_name(name)
                    saved_at = saved_at if timestamp is None else as_nanoseconds(timestamp)
                    kept[name] = value if type(value) is float else as_number(value, self.errors_of_training)
                except UnsupportedValue as exc:
                    self.refuse(name, exc)
        finally:  # also those before a number that raises an error of training
            with self._lock:
                if kept and (at := self._step_to_save_into(step, mode)) is not None:
                    batch = at.scalar_batch()
                    if self.clock.is_ahead and (again := kept.keys() & {plan.name for plan in batch.plans}):
                        self.failures.warn_of_repetition(min(again))
                    plans = [self.scalar_plan(name, sm_metric) for name in kept]
                    batch.add(plans, tuple(kept.values()), (saved_at,) * len(kept))
                    self.called_steps.enqueue(at)

    def save_tensor(
        self,
        name: str,
        value: Array,
        collections_to_write: Iterable[str] | str = "default",
        owned: bool = False,
        step: Any = None,
        mode: Any = None,
    ) -> None:
        """Keep an array at a step; see `BaseHook.save_tensor`. It is copied, unless nothing else changes it (`owned`).

        Raises:
            ConfigurationError: `step` or `mode` is invalid.
        """
        try:
            plan = self.tensor_plan(name, collections_to_write)
        except ConfigurationError as exc:
            self.refuse(name, exc)
            return
        with self._lock:
            at = self._step_to_save_into(step, mode)
            if at is not None:
                try:
                    self.record(plan, value, owned=owned, step=at)
                finally:
                    self.called_steps.enqueue(at)

    def _step_to_save_into(self, step: Any = None, mode: Any = None) -> Step | None:
        """Return the step for values that the user saves by a call; None if nothing is saved."""
        if not self.active:
            self.warn_if_copy()
            if self._loses:
                self.failures.warn_of_loss()
            return None
        opened = self.clock.step
        # A fast path: many numbers are saved at the same step.
        if mode is None and opened is not None and (step is None or (type(step) is int and step == opened.mode_step)):
            return opened
        number, mode = None if step is None else step_number(step), None if mode is None else ModeKeys.parse(mode)
        if not self.run.open:
            self._start()
        found = self.called_steps.find(number, mode) if self.active else None
        return found if self.active else None

    def _count_bytes(self, step: Step, nbytes: int) -> None:
        """Pass the open step's records to the writer, once they have enough bytes together with `nbytes` more."""
        if step is not self.clock.step:
            return
        self._waiting_bytes += nbytes
        if self._waiting_bytes >= _ENQUEUE_BYTES and self.run.open:
            self._enqueued, self._waiting_bytes = self._enqueued + len(step.records), 0
            self.run.put(step)


def _collections(collections_to_write: Iterable[str] | str) -> tuple[str, ...]:
    """Return the collection names of a call. Raise ConfigurationError for an invalid name."""
    found = tuple(names(collections_to_write, "collections_to_write")) or (CollectionKeys.DEFAULT,)
    for collection in found:
        check_collection_name(collection)
    return found


# A program that saves a thousand tensors a step passes the same text each time.
_collections_in = functools.lru_cache(maxsize=256)(_collections)
