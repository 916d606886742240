"""The capture of torch tensors: the receiver of all callbacks, from the step of a forward to the record of a tensor."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from tensortrial.config.changes import Changes
from tensortrial.config.collection import CollectionKeys
from tensortrial.errors import ConfigurationError, UnsupportedValue, message_of
from tensortrial.format.buffer_pool import SMALL_BYTES
from tensortrial.format.record import Plan, Record, check_name
from tensortrial.mode import ModeKeys

from ..core.configuration.collections import ModuleCollection
from ..core.log import logger
from ..core.recorder import Recorder, guarded
from ..core.step_clock import OccurrenceCounter
from . import compile as compiled
from .arrays import PLAIN, hiding_in, host_copy, host_dtype, is_nested, local_part, nested_parts, tensors_in, to_tensor
from .buffer_pool import BufferPool
from .callbacks import GradientCallback
from .callers import Caller, caller_of, in_probe
from .device import Batch, Measured, Ready, copy_later
from .gradients import LOCAL, OPTIMIZER, Unscaling, gradients_of
from .losses import is_loss_key, is_scalar, losses_in
from .models import Models
from .names import Root, activations_in
from .optimizers import Optimizers, groups_of
from .routers import router_values
from .scripting import hide_callbacks_from_scripting
from .unsaved import MissedCapture, NothingSaved
from .updates import OPTIMIZER_KIND, Updates

_NOTHING = np.empty(0)
_LOSSES = frozenset({CollectionKeys.LOSSES})
_NAME = attrgetter("name")


class Capture:
    """The receiver of callbacks. It begins steps, and records tensors that are due.

    A guard around each callback turns the hook off after an error. With `full_tensors`, tensors are gathered even after
    an error in one of them, because other processes wait for it.

    Args:
        full_tensors: Gather a tensor that is sharded over processes from all of them each time it is due. The first
            process that holds it saves it. All processes must capture the same tensors in the same order.
    """

    def __init__(self, recorder: Recorder, moments: frozenset[str], full_tensors: bool = False) -> None:
        self.recorder = recorder
        self.moments, self._full_tensors = moments, full_tensors
        self.num_updates = 0
        """The number of steps that registered optimizers have made."""
        self.unscaling = Unscaling()
        self._pauses = 0
        self._in_probe = self._lazy = self._knows_losses = False
        self._generation = self._resolved_at = -1
        self.occurrences = OccurrenceCounter()
        self._hiding: set[type[Any]] = set()
        self._batches: dict[torch.device, Batch] = {}
        self._buffers = BufferPool()
        self._raw_plans: dict[str, Plan] = {}
        self.models = Models(self, recorder.collections, moments)
        self.optimizers = Optimizers(self, recorder.failures)
        self.updates = Updates(recorder, self, self.optimizers, self.models)
        if OPTIMIZER in moments:
            self.updates.kinds.add(OPTIMIZER_KIND)
        self.missed = MissedCapture()
        self.unsaved = NothingSaved(recorder, self.models)

    @property
    def saving(self) -> bool:
        """True if anything is due at the open step, and models run for it."""
        return self.recorder.saving and not self._pauses

    @property
    def saving_tensors(self) -> bool:
        """True if more than losses is due, because losses need no callbacks on every module and parameter."""
        saving = self.recorder.saving and not self._pauses
        return saving and not (self._knows_losses and self.recorder.planner.due == _LOSSES)

    @contextmanager
    def not_capturing(self) -> Iterator[None]:
        """Do not capture models that run inside the block. They begin no step."""
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1

    def may_save(self, names: list[str]) -> bool:
        """Return whether one of these tensors may be saved at some step."""
        self.resolve_modules()
        return self.recorder.may_save(names)

    # Methods of the hook: what users register, and save by a call.

    @guarded
    def register_module(self, module: torch.nn.Module, name: str | None) -> None:
        """Capture the tensors of a model."""
        hide_callbacks_from_scripting()
        root = self.models.register(module, name)
        if root is not None:
            self.recorder.pending_models.add(root.name)
            self.recorder.run.environment.add("activations", activations_in(root))
            self.missed.expect(root)
            # Compiled code that runs before the first step has its callbacks.
            compiled.refresh()
            compiled.switch.turn(self, self.recorder.active)

    @guarded
    def register_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Capture the updates of an optimizer, and of those inside it."""
        for each in [] if self.recorder.closed else self.optimizers.with_callbacks(optimizer):
            name = self.optimizers.register(each)
            if name is not None:
                self.recorder.collections.include([CollectionKeys.HYPERPARAMETERS])
                self.recorder.run.environment.add("optimizers", {name: groups_of(each)})

    @guarded
    def register_loss(self, module: torch.nn.Module) -> None:
        """Capture the output of a loss, and its inputs."""
        self.models.register_loss(module)

    def save_gradients_now(self, module: torch.nn.Module | None) -> None:
        """Capture the current gradients of a registered model, or of all, in place of those of the backward."""
        if module is not None and self.saving_tensors and self.models.root_of(module) is None:
            raise ConfigurationError(f"save_gradients takes a registered model, got a {type(module).__name__}")
        step = self.updates.saved_by_call = self.recorder.clock.step
        for root, model in self.models.living() if self.saving_tensors else ():
            if module is None or root is self.models.root_of(module):
                root.gradients_saved_at = step
                self.save_gradients(root, model)

    def record_tensor_value(self, base: str, value: Any) -> None:
        """Capture a value as the next one of this base name in the step."""
        check_name(base)
        if not self.saving:
            return
        name = f"{base}_output_{self.occurrences.next(self.recorder.clock.step, base, 'output')}"
        if "loss" in base.lower():
            self.models.add_loss(name)
        try:
            self.tensor(name, to_tensor(value))
        except UnsupportedValue as exc:
            self.recorder.refuse(name, exc)

    # The steps that the user begins and ends.

    def set_mode(self, mode: ModeKeys) -> None:
        """Close the open step, and count the following ones in a mode."""
        self.send()
        self.recorder.set_mode(mode)
        self.turn_switch()

    def resume_at(self, step: Any, mode: Any) -> None:
        """Continue at a step of a checkpoint."""
        self.end_step()
        self.recorder.resume_at(step, mode)
        self.models.start_again()
        self.optimizers.start_again()

    def hold_step(self, step: Any, mode: Any) -> None:
        """Begin a step that lasts until `release_step`."""
        if self.recorder.counting:
            self.end_step()
        self.recorder.hold_step(step, mode)
        self.follow_plan()
        if self.recorder.counting:
            self.unsaved.check()
            for root, _ in self.models.living():
                self.save_parameters(root)
                self.recorder.pending_models.discard(root.name)
        self.turn_switch()

    def release_step(self) -> None:
        """End the step that `hold_step` began."""
        saved = self.saving
        try:
            for root, module in self.models.living() if saved and LOCAL in self.moments else ():
                # A pipeline scales the sum of the microbatches' gradients after the last of them.
                if root.in_pipeline and root.gradients_saved_at is not self.recorder.clock.step:
                    self.save_gradients(root, module)
        finally:  # also after Ctrl-C
            self.recorder.release_step()
        if saved and not self.saving:
            self.unsaved.note_due_step()

    @guarded
    def begin_close(self) -> None:
        """Prepare for the end of the run."""
        self.unsaved.begin_close()
        self.send()

    # Methods that callbacks call.

    @guarded
    def begin_root(self, root: Root, module: torch.nn.Module | None) -> None:
        """Begin a step, because a model is about to run."""
        if self._pauses:
            return
        if self.recorder.counting:
            caller = Caller.TRAINING if module is None else caller_of(module)
            self._in_probe = caller is Caller.PROBE
            root.in_pipeline |= caller is Caller.PIPELINE
            if caller in (Caller.TRAINING, Caller.PIPELINE):
                self._begin_step(root)
                if module is not None:
                    self.unsaved.note_forward(module)
        elif self.recorder.closed:  # closed by another thread, or after an error
            self.let_go()
            return
        self.turn_switch()

    @guarded
    def capture_values(self, path: str, direction: str, value: Any) -> None:
        """Capture a module's inputs or outputs."""
        if self._in_probe:
            self._in_probe = in_probe()
            if self._in_probe:
                return
        if self.missed.unchecked:
            self.missed.note(path)
        finds = direction == "output" and not self.models.has_losses and self._is_root(path)
        losses = losses_in(value) if finds else ()
        self.values(path, direction, value, losses)
        if self._lazy and direction == "output":
            self._save_late_parameters()

    @guarded
    def capture_value(self, path: str, direction: str, key: str | None, tensor: torch.Tensor) -> None:
        """Capture one of a module's inputs or outputs."""
        if self.missed.unchecked:
            self.missed.note(path)
        is_loss = self.finds_loss(path, direction, key) and is_scalar(tensor)
        self.value(path, direction, key, tensor, is_loss)

    def finds_loss(self, path: str, direction: str, key: str | None) -> bool:
        """Return whether an output of compiled code is a loss."""
        return direction == "output" and is_loss_key(key) and not self.models.has_losses and self._is_root(path)

    def _is_root(self, path: str) -> bool:
        """Return whether this is the name of a registered model."""
        return path in map(_NAME, self.models.roots)

    @guarded
    def begin_update(self, name: str, optimizer: torch.optim.Optimizer) -> None:
        """Capture the hyperparameters and gradients that an optimizer is about to use."""
        if self.saving_tensors:
            self.updates.begin(name, optimizer)
        elif OPTIMIZER in self.moments and self.recorder.clock.step is None and self.recorder.counting:
            self.recorder.failures.warn_once(
                f"the gradients of {name} are not saved: call its step() inside `with hook.step():`"
            )

    @guarded
    def end_update(self, optimizer: torch.optim.Optimizer) -> None:
        """Capture the changes that an update made."""
        self.num_updates += 1
        self.updates.end(optimizer)

    @guarded
    def capture_gradient(self, callback: GradientCallback, gradient: torch.Tensor | None, version: int) -> None:
        """Capture the gradient of a parameter."""
        if self.missed.unchecked:
            self.missed.note(callback.name)
        self.unsaved.gradients_arrived = True
        step = self.recorder.clock.step
        root, name = callback.root, callback.name
        if gradient is None or root.gradients_saved_at is step or root.in_pipeline or self.updates.uses(name):
            return
        # Before the parameter's update, gradients accumulate. After it, losses of other models may still add to a
        # gradient that is no longer used, such as that of a GAN's discriminator.
        if not callback.follows_update(step, version):
            self.tensor(name, self.unscaling.of_backward(gradient))

    def _begin_step(self, root: Root) -> None:
        self.end_step()
        self.recorder.begin_step()
        if not self.recorder.clock.held:  # otherwise `hold_step` has done this
            self.follow_plan()
            self.unsaved.check()
        self.recorder.pending_models.discard(root.name)
        root.ran_at = self.recorder.clock.step
        self.save_parameters(root)

    def follow_plan(self) -> None:
        """Place callbacks for the step that has begun. Modules without due tensors lose theirs."""
        self._knows_losses = len(self.recorder.collections.saved_names) > 1 and self.models.knows_all_losses()
        due = self.recorder.planner.due if self.saving_tensors else frozenset()
        self.models.place_callbacks(due, self.recorder.planner.generation)

    def end_step(self) -> None:
        """Check the captured tensors of the open step, which is about to be closed."""
        self.resolve_modules()
        if self.saving:
            if not self.recorder.clock.held:
                self.unsaved.note_due_step()
            if OPTIMIZER in self.moments:
                self.optimizers.warn_if_none()
        if self.saving_tensors:
            self.missed.check(self.recorder.clock.step, lambda name: self.recorder.planner.plan(name) is not None)
        self.send()

    @property
    def saves_buffers(self) -> bool:
        """True if a buffer of a model is saved by any collection that it matches."""
        return True

    def save_parameters(self, root: Root) -> None:
        """Record the parameters and buffers of a model, once a step."""
        step = self.recorder.clock.step
        # A model that runs again in the step may have been updated in between.
        if self.saving_tensors and root.parameters_saved_at is not step:
            root.parameters_saved_at = step
            saves_buffers = self.saves_buffers
            for name, tensor in self.models.follow(root):
                if saves_buffers or isinstance(tensor, torch.nn.Parameter):
                    self.tensor(name, tensor)
            self._lazy |= bool(root.uninitialized)

    def _save_late_parameters(self) -> None:
        """Save the parameters that lazy modules initialized when they ran for the first time."""
        self._lazy = False
        for root, _ in self.models.living():
            if waiting := root.uninitialized.copy():
                for name, tensor in self.models.follow(root):
                    if name in waiting and not is_lazy(tensor):
                        self.tensor(name, tensor)
                self._lazy |= bool(root.uninitialized)

    def save_gradients(self, root: Root, module: torch.nn.Module) -> None:
        """Record the present gradients of a model."""
        self.unsaved.gradients_arrived = True
        for parameter, gradient in gradients_of(root, module):
            self.models.add_gradient(parameter)
            self.missed.note(name := f"gradient/{parameter}")
            self.tensor(name, self.unscaling.of_now(gradient))

    def turn_switch(self) -> None:
        """Set the switch that compiled code checks before it runs: if it is off, the graph has no callbacks."""
        recorder = self.recorder
        if recorder.planner.generation != self._generation:
            self._generation = recorder.planner.generation
            compiled.refresh()
        # A model inside compiled code begins its step after the code has checked the switch.
        ahead = any(root.in_compiled_code or root.name in recorder.pending_models for root in self.models.roots)
        # With a growing interval, losses are due at every step, and the graphs would copy every captured tensor.
        rest = _LOSSES if recorder.grows else frozenset()
        is_due = recorder.saving and bool(recorder.planner.due - rest)
        compiled.switch.turn(self, is_due or (ahead and bool(recorder.next_due() - rest)))

    def resolve_modules(self) -> None:
        """Add the tensors of modules to the collections that a user has added the modules to."""
        if self._resolved_at == (changes := Changes.count()):
            return  # as at most steps
        for collection in self.recorder.collections:
            if isinstance(collection, ModuleCollection):
                collection.resolve(self.models.names)
        self._resolved_at = changes  # read before: another thread may add a module meanwhile

    @guarded
    def let_go(self) -> None:
        """Remove the callbacks, and keep no reference to a model."""
        compiled.switch.close(self)
        self.unsaved.check()
        self.models.release()
        self.optimizers.release()
        self.updates.release()
        self._batches.clear()
        self._buffers.close()
        for collection in self.recorder.collections:
            if isinstance(collection, ModuleCollection):
                collection.forget_parts()

    def values(self, path: str, direction: str, value: Any, losses: Sequence[torch.Tensor] = ()) -> None:
        """Record all tensors in a module's inputs (direction "input") or outputs ("output"), and their losses."""
        if type(value) is tuple and len(value) == 1:
            value = value[0]
        # Most modules receive and return one tensor.
        if type(value) is torch.Tensor:
            self.value(path, direction, None, value, bool(losses))
        else:
            for key, tensor in tensors_in(value):
                self.value(path, direction, key, tensor, any(tensor is each for each in losses))
            for kind in hiding_in(value):
                self._warn_of_hidden(path, direction, kind)

    def value(self, path: str, direction: str, key: str | None, tensor: torch.Tensor, is_loss: bool = False) -> None:
        """Record one tensor of a module's inputs or outputs. A tensor that is identified by its position has no key."""
        step = self.recorder.clock.step
        label: object = self.occurrences.next(step, path, direction) if key is None else key
        # If the module runs again in the step, a number is appended to the key. Another key may end in this number.
        while key is not None and (count := self.occurrences.next(step, path, f"{direction}_{label}")):
            label = f"{label}_{count}"
        name = f"{path}_{direction}_{label}"
        if is_loss:
            self.models.add_loss(name)
        self.tensor(name, tensor)
        if direction == "output" and label == 0 and CollectionKeys.HEALTH in self.recorder.planner.due:
            for name, found in router_values(path, tensor):
                self._record_raw(name, found)

    def _record_raw(self, name: str, tensor: torch.Tensor) -> None:
        """Record a small computed tensor raw, even if only its statistics are due."""
        if name not in self._raw_plans:
            plan = self.recorder.planner.plan(name)
            if plan is None:
                return
            self._raw_plans[name] = Plan(name, plan.collections, raw=True)
        self.planned(self._raw_plans[name], tensor)

    def _warn_of_hidden(self, path: str, direction: str, kind: type[Any]) -> None:
        """Log, once for each class, that the tensors in its objects are not saved."""
        if kind not in self._hiding and self.recorder.may_save([f"{path}_{direction}_0"]):
            self._hiding.add(kind)
            logger.warning(
                "the tensors in a %s, an %s of %s, are not saved: pass them in a tuple, list, dictionary or dataclass",
                kind.__name__,
                direction,
                path,
            )

    def tensor(self, name: str, tensor: torch.Tensor) -> None:
        """Record a tensor by its name."""
        if tensor.is_nested if type(tensor) in PLAIN else is_nested(tensor):
            self._nested(name, tensor)
            return
        plan = self.recorder.planner.plan(name)
        if plan is not None:
            self.planned(plan, tensor)

    def planned(self, plan: Plan, tensor: torch.Tensor) -> None:
        """Record a dense tensor by its plan. After an error, tensors are still gathered."""
        try:
            if type(tensor) not in PLAIN:
                if is_lazy(tensor):
                    return
                if self._full_tensors and hasattr(tensor, "full_tensor"):
                    sharded: Any = tensor.detach()
                    tensor = sharded.full_tensor()
                    if any(sharded.device_mesh.get_coordinate()):
                        self.unsaved.left_to_another = True
                        return
            if self.recorder.active:
                self._record(plan, local_part(tensor))
        except UnsupportedValue as exc:
            self.recorder.refuse(plan.name, exc)
        except Exception as exc:  # noqa: BLE001 - a class of its own may raise anything; else the hook is off from here on
            if type(tensor) in PLAIN:
                self.recorder.fail(exc)
            else:
                self.recorder.refuse(plan.name, UnsupportedValue(f"it cannot be read: {message_of(exc)}"))

    def _nested(self, name: str, tensor: torch.Tensor) -> None:
        if all(self.recorder.planner.plan(each) is None for each in (name, f"{name}_lengths")):
            return
        try:
            parts = nested_parts(name, tensor)
        except UnsupportedValue as exc:
            self.recorder.refuse(name, exc)
            return
        for part, dense in parts:
            self.tensor(part, dense)

    def send(self) -> None:
        """Send the statistics that were computed on devices to the host, at the end of a step."""
        for device in list(self._batches):
            if batch := self._batches.pop(device, None):
                batch.send()

    def _record(self, plan: Plan, tensor: torch.Tensor) -> None:
        """Record a tensor on the host. The writer's thread computes the statistics from the copy."""
        if not tensor.is_cpu:
            self._record_on_device(plan, tensor)
        elif tensor.nbytes >= SMALL_BYTES:
            buffer = self._buffers.acquire(tensor)
            self.recorder.add(Record(plan, buffer.array, time.time_ns(), owner=buffer))
        elif plan.only_raw:
            self.recorder.record(plan, host_copy(tensor), owned=True)
        else:
            self.recorder.add(Record(plan, host_copy(tensor), time.time_ns()))

    def _record_on_device(self, plan: Plan, tensor: torch.Tensor) -> None:
        """Record a tensor on a device. If only statistics are due, only these are sent to the host."""
        value, ready, statistics, by_axis = _NOTHING, None, None, None
        if plan.statistics and not plan.digest and not plan.sketch and tensor.numel():
            (statistics, by_axis), ready = self._measure(plan, tensor)
        if statistics is None or plan.raw or plan.histogram:
            value, copied = copy_later(tensor)
            ready = _in_turn(*(each for each in (copied, ready) if each is not None))
        self.recorder.add(
            Record(
                plan,
                value,
                time.time_ns(),
                statistics,
                dtype=host_dtype(tensor),
                shape=tuple(tensor.shape),
                ready=ready,
                by_axis=by_axis,
            )
        )

    def _measure(self, plan: Plan, tensor: torch.Tensor) -> tuple[Measured, Ready]:
        batch = self._batches.get(tensor.device)
        found = None if batch is None else batch.add(plan, tensor)
        if batch is None or found is None:
            batch = self._batches[tensor.device] = Batch()
            found = batch.add(plan, tensor)
            assert found is not None
        return found, batch.ready


def _in_turn(*calls: Ready) -> Ready:
    return lambda: [call() for call in calls]
