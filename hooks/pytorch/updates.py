"""What an optimizer's step changes: the update of each parameter, and its size relative to the parameter."""

from __future__ import annotations

import torch

from tensortrial.config.collection import CollectionKeys
from tensortrial.config.reduction_config import ReductionConfig
from tensortrial.format.record import Plan

from ..core.recorder import Recorder
from .arrays import local_part
from .capture import Capture


class Updates:
    """The updates of parameters, at steps at which they are due. Only then the parameters are copied.

    Args:
        recorder: The recorder of the hook.
        capture: Records tensors.
    """

    def __init__(self, recorder: Recorder, capture: Capture) -> None:
        self._recorder, self._capture = recorder, capture
        self._step: object = None
        self._before: dict[int, tuple[str, torch.Tensor]] = {}
        self._ratios: dict[str, Plan] = {}
        updates = recorder.collections.require(CollectionKeys.UPDATES)
        updates.include("^update/")
        updates.reduction_config = ReductionConfig(norms=["l2"])

    def begin(self, optimizer: torch.optim.Optimizer, names: dict[int, str]) -> None:
        """Copy the parameters whose updates are due, unless that was done in this step of the hook and the optimizer.

        Args:
            optimizer: The optimizer, whose step is about to change its parameters.
            names: The names of parameters by their ids.
        """
        if self._step is not self._recorder.step:
            self._step, self._before = self._recorder.step, {}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name = names.get(id(parameter))
                if name is None or id(parameter) in self._before or parameter.grad is None:
                    continue
                if self._recorder.plan(f"update/{name}") is not None:
                    self._before[id(parameter)] = name, local_part(parameter).clone()

    def end(self, optimizer: torch.optim.Optimizer) -> None:
        """Record what the optimizer's step has changed, and free the copies."""
        if not self._before:
            return
        if self._step is self._recorder.step:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if id(parameter) in self._before:
                        self._record(*self._before.pop(id(parameter)), local_part(parameter))
        else:
            self._before = {}

    def release(self) -> None:
        """Free the copies."""
        self._before = {}

    def _record(self, name: str, before: torch.Tensor, after: torch.Tensor) -> None:
        plan = self._recorder.plan(f"update/{name}")
        if plan is None:
            return
        with torch.no_grad():
            # In float32 at least: the difference of two bfloat16 is seldom one.
            dtype = torch.promote_types(after.dtype, torch.float32)
            before = before.to(dtype)
            update = after.to(dtype) - before
            ratio = torch.linalg.vector_norm(update) / torch.linalg.vector_norm(before)
        self._capture.planned(plan, update)
        if name not in self._ratios:
            self._ratios[name] = Plan(f"update_ratio/{name}", plan.collections, raw=True)
        self._capture.planned(self._ratios[name], ratio)
