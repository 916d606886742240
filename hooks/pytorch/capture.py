"""The capture of torch tensors: from a tensor and its name to a record."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from tensortrial.config.collection import CollectionKeys
from tensortrial.errors import UnsupportedValue
from tensortrial.format.record import Plan

from ..core.base_hook import guarded
from ..core.recorder import Recorder
from ..core.steps.counters import OccurrenceCounter
from .arrays import hiding_in, host_dtype, local_part, tensors_in, values_and_lengths
from .buffer_pool import BufferPool
from .device import Batch, Measured, Ready, copy_later
from .routers import Routers

logger = logging.getLogger("tensortrial.hooks")

_NOTHING = np.empty(0)


class Capture:
    """Records what is due of tensors.

    Args:
        recorder: The recorder of the hook.
        full_tensors: Gather a tensor that is sharded over processes from all of them each time it is due. The first
            process that holds it saves it. All processes must capture the same tensors in the same order.
    """

    def __init__(self, recorder: Recorder, full_tensors: bool = False) -> None:
        self.recorder = recorder
        self._full_tensors = full_tensors
        self.left_to_another = False
        """Whether another process saves a tensor that was gathered here."""
        self._occurrences = OccurrenceCounter()
        self._hiding: set[type[Any]] = set()
        self._batches: dict[torch.device, Batch] = {}
        self._buffers = BufferPool()
        self._routers = Routers(recorder, self.planned)

    def values(self, path: str, direction: str, value: Any, losses: Sequence[torch.Tensor] = ()) -> None:
        """Record all tensors in what a module received (direction "input") or returned ("output").

        Args:
            path: The name of the module.
            direction: "input" or "output".
            value: A tensor, or a container of tensors.
            losses: Those of the tensors that are losses.
        """
        if type(value) is torch.Tensor:
            self.value(path, direction, None, value, bool(losses))
        else:
            for key, tensor in tensors_in(value):
                self.value(path, direction, key, tensor, any(tensor is each for each in losses))
            for kind in hiding_in(value):
                self._warn_of_hidden(path, direction, kind)

    def value(self, path: str, direction: str, key: str | None, tensor: torch.Tensor, is_loss: bool = False) -> None:
        """Record one of them. A tensor that is identified by its position has no key."""
        if key is None:
            label: object = self.number(path, direction)
        else:
            # The key itself, and when the module runs again in the step, the key with a number.
            count = self.number(path, f"{direction}_{key}")
            label = f"{key}_{count}" if count else key
        name = f"{path}_{direction}_{label}"
        if is_loss:
            self.recorder.collections.require(CollectionKeys.LOSSES).add_tensor_names([name])
        self.tensor(name, tensor)
        if direction == "output" and label == 0:
            self._routers.record(path, tensor)

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

    def number(self, path: str, kind: str) -> int:
        """Return how many values of this kind the module had before in the step."""
        return self._occurrences.next(self.recorder.clock.step, path, kind)

    @guarded
    def tensor(self, name: str, tensor: torch.Tensor) -> None:
        """Record a tensor by its name. After an error inside, other tensors are still gathered."""
        if tensor.is_nested:
            self._nested(name, tensor)
            return
        plan = self.recorder.planner.plan(name)
        if plan is not None:
            self.planned(plan, tensor)

    @guarded
    def planned(self, plan: Plan, tensor: torch.Tensor) -> None:
        """Record a dense tensor of which something is due."""
        if is_lazy(tensor):
            return
        if self._full_tensors and hasattr(tensor, "full_tensor"):
            sharded: Any = tensor.detach()
            tensor = sharded.full_tensor()
            if any(sharded.device_mesh.get_coordinate()):
                self.left_to_another = True
                return
        if not self.recorder.active:
            return
        try:
            self._record(plan, local_part(tensor))
        except UnsupportedValue as exc:
            self.recorder.refuse(plan.name, exc)

    def _nested(self, name: str, tensor: torch.Tensor) -> None:
        lengths_name = f"{name}_lengths"
        if self.recorder.planner.plan(name) is None and self.recorder.planner.plan(lengths_name) is None:
            return
        try:
            values, lengths = values_and_lengths(tensor)
        except UnsupportedValue as exc:
            self.recorder.refuse(name, exc)
            return
        self.tensor(name, values)
        self.tensor(lengths_name, lengths)

    def send(self) -> None:
        """Send the statistics that were computed on devices to the host, at the end of a step."""
        for device in list(self._batches):
            if batch := self._batches.pop(device, None):
                batch.send()

    def release(self) -> None:
        """Free the memory of copies."""
        self._batches.clear()
        self._buffers.close()

    def _record(self, plan: Plan, tensor: torch.Tensor) -> None:
        if self._is_host(tensor) and tensor.numel():
            # The writer's thread computes the statistics from the copy.
            buffer = self._buffers.acquire(tensor)
            self.recorder.record(plan, buffer.array, owned=True, owner=buffer)
            return
        if not plan.statistics or plan.digest or plan.sketch or self._is_host(tensor):
            value, ready = copy_later(tensor)
            self.recorder.record(plan, value, owned=True, ready=ready)
            return
        # A few numbers are sent to the host instead of the whole tensor.
        (statistics, by_axis), ready = self._measure(plan, tensor)
        if plan.raw or plan.histogram:
            value, copied = copy_later(tensor)
            both = ready if copied is None else _in_turn(copied, ready)
            self.recorder.record(plan, value, owned=True, statistics=statistics, by_axis=by_axis, ready=both)
            return
        self.recorder.record(
            plan,
            _NOTHING,
            owned=True,
            statistics=statistics,
            by_axis=by_axis,
            dtype=host_dtype(tensor),
            shape=tuple(tensor.shape),
            ready=ready,
        )

    def _is_host(self, tensor: torch.Tensor) -> bool:
        return tensor.is_cpu

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
