"""From torch's tensors to records."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from tensortrial.errors import UnsupportedValue
from tensortrial.records import Plan

from .hook import guarded
from .numbering import Numbering
from .recorder import Recorder
from .torch_reductions import device_statistics
from .torch_tensors import host_copy, host_dtype, local_part, tensors_in

_NOTHING = np.empty(0)


class Capture:
    """Takes what is due of the tensors that a hook is told of, under their names.

    With `full_tensors`, what is sharded over processes is put together from all of them, each time it is due, and the
    first of those that hold it saves it: all have to come here for the same tensors in the same order.
    """

    def __init__(self, recorder: Recorder, full_tensors: bool = False) -> None:
        self.recorder = recorder
        self._full_tensors = full_tensors
        self._numbering = Numbering()

    def values(self, path: str, direction: str, value: Any) -> None:
        """All tensors in what a module took (`input`) or gave (`output`)."""
        for key, tensor in tensors_in(value):
            self.value(path, direction, key, tensor)

    def value(self, path: str, direction: str, key: str | None, tensor: torch.Tensor) -> None:
        """One of them; those by position have no key."""
        if key is None:
            label: object = self.number(path, direction)
        else:
            # The key itself, and when the module runs again in the step, the key with a number.
            count = self.number(path, f"{direction}_{key}")
            label = f"{key}_{count}" if count else key
        self.tensor(f"{path}_{direction}_{label}", tensor)

    def number(self, path: str, kind: str) -> int:
        """How many of this kind came before in the step."""
        return self._numbering.next(self.recorder.step, path, kind)

    @guarded
    def tensor(self, name: str, tensor: torch.Tensor) -> None:
        """A tensor whose name is known. After an error inside, others are still put together."""
        plan = self.recorder.plan(name)
        if plan is None or is_lazy(tensor):
            return
        if self._full_tensors and hasattr(tensor, "full_tensor"):
            sharded: Any = tensor.detach()
            tensor = sharded.full_tensor()
            if any(sharded.device_mesh.get_coordinate()):
                return
        if not self.recorder.active:
            return
        try:
            self._record(plan, local_part(tensor))
        except UnsupportedValue as exc:
            self.recorder.refuse(name, exc)

    def _record(self, plan: Plan, tensor: torch.Tensor) -> None:
        statistics = None
        if plan.statistics and tensor.device.type != "cpu":
            # A few numbers travel instead of the whole tensor. On the CPU the writer's thread computes them from the
            # copy.
            values = device_statistics([tensor], plan.statistics)[0].tolist()
            statistics = dict(zip(plan.statistics, values, strict=True))
        if statistics is None or plan.raw or plan.histogram:
            self.recorder.record(plan, host_copy(tensor), owned=True, statistics=statistics)
        else:
            dtype, shape = host_dtype(tensor), tuple(tensor.shape)
            self.recorder.record(plan, _NOTHING, owned=True, statistics=statistics, dtype=dtype, shape=shape)
