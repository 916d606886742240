"""The capture of an optimizer's step: hyperparameters, gradients, and the update of each parameter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch

from tensortrial.config.collection import CollectionKeys
from tensortrial.config.reduction_config import ReductionConfig
from tensortrial.errors import UnsupportedValue
from tensortrial.format.record import Plan

from ..core.recorder import Recorder
from .arrays import local_part
from .gradients import parameters_of
from .models import Models
from .optimizers import Optimizers, gradients_seen, hyperparameters_of

LOCAL_KIND, OPTIMIZER_KIND = "gradient", "optimizer_gradient"
"""The prefixes of the names of this worker's gradients, and of the gradients that an optimizer uses."""


class Receiver(Protocol):
    """The object that records tensors: the capture."""

    def tensor(self, name: str, tensor: torch.Tensor) -> None:
        """Record a tensor by its name, if it is due."""

    def planned(self, plan: Plan, tensor: torch.Tensor) -> None:
        """Record a due tensor by its plan."""


class Updates:
    """The updates of parameters. Parameters are copied only at steps at which updates are due.

    Args:
        recorder: The recorder of the hook.
        capture: Records tensors.
        optimizers: The registered optimizers.
        models: The registered models.
    """

    def __init__(self, recorder: Recorder, capture: Receiver, optimizers: Optimizers, models: Models) -> None:
        self._recorder, self._capture, self._optimizers, self._models = recorder, capture, optimizers, models
        self.kinds: set[str] = set()
        """The prefixes of the names under which gradients of updates are saved."""
        self.saved_by_call: object = None
        """The last step whose gradients the user saved by a call."""
        self._used: set[str] = set()
        self._used_at: object = None
        self._step: object = None
        self._before: dict[int, tuple[str, torch.Tensor]] = {}
        self._ratios: dict[str, Plan] = {}
        updates = recorder.collections.require(CollectionKeys.UPDATES)
        updates.include("^update/")
        updates.reduction_config = ReductionConfig(norms=["l2"])

    def begin(self, name: str, optimizer: torch.optim.Optimizer) -> None:
        """Record hyperparameters and gradients before an update, and copy the parameters whose update is due."""
        names = self._models.parameter_names()
        self._save_hyperparameters(name, optimizer)
        if self.kinds:
            self._save_gradients(name, optimizer, names)
        self._copy_parameters(optimizer, names)

    def uses(self, gradient: str) -> bool:
        """Return whether a local gradient is saved only when a registered optimizer uses it."""
        if LOCAL_KIND not in self.kinds:
            return False
        if self._used_at is not self._recorder.clock.step:
            names, self._used_at = self._models.parameter_names(), self._recorder.clock.step
            parameters = {id(parameter) for each in self._optimizers for parameter in parameters_of(each)}
            self._used = {f"{LOCAL_KIND}/{names[each]}" for each in parameters if each in names}
        return gradient in self._used

    def _save_hyperparameters(self, name: str, optimizer: torch.optim.Optimizer) -> None:
        found = dict(hyperparameters_of(name, optimizer))
        numbers = {key: float(value) for key, value in found.items() if not isinstance(value, torch.Tensor)}
        self._recorder.record_numbers(tuple(numbers), list(numbers.values()))
        for key, value in found.items():
            if isinstance(value, torch.Tensor):  # as CUDA graphs need it
                self._capture.tensor(key, value)

    def _save_gradients(self, name: str, optimizer: torch.optim.Optimizer, names: dict[int, str]) -> None:
        kinds = self.kinds - {LOCAL_KIND} if self.saved_by_call is self._recorder.clock.step else self.kinds
        for parameter, gradient in gradients_seen(optimizer):
            if id(parameter) in names:
                # It may be frozen: a gradient can be estimated without autograd.
                self._models.add_gradient(names[id(parameter)])
                for kind in kinds:
                    self._capture.tensor(f"{kind}/{names[id(parameter)]}", gradient)
        if names.keys().isdisjoint(map(id, parameters_of(optimizer))):
            self._recorder.failures.warn_once(
                f"the gradients of {name} are not saved: no registered model has one of its parameters"
            )

    def _copy_parameters(self, optimizer: torch.optim.Optimizer, names: dict[int, str]) -> None:
        """Copy parameters, each once in a step of the hook and of the optimizer."""
        if self._step is not self._recorder.clock.step:
            self._step, self._before = self._recorder.clock.step, {}
        for parameter in parameters_of(optimizer):
            name = names.get(id(parameter))
            if name is None or id(parameter) in self._before or parameter.grad is None:
                continue
            if self._recorder.planner.plan(f"update/{name}") is not None:
                try:
                    self._before[id(parameter)] = name, local_part(parameter).clone()
                except UnsupportedValue as exc:
                    self._recorder.refuse(f"update/{name}", exc)

    def end(self, optimizer: torch.optim.Optimizer) -> None:
        """Record the changes of the optimizer's step, and free the copies."""
        if not self._before:
            return
        if self._step is self._recorder.clock.step:
            for parameter in parameters_of(optimizer):
                if id(parameter) in self._before:
                    name, before = self._before.pop(id(parameter))
                    self._record(name, before, local_part(parameter))
                    self._record_moments(name, parameter, optimizer.state.get(parameter, {}))
        else:
            self._before = {}

    def release(self) -> None:
        """Free the copies."""
        self._before = {}

    def _record_moments(self, name: str, parameter: torch.Tensor, state: Mapping[str, Any]) -> None:
        """Record an optimizer's state tensors of a parameter's shape, such as Adam's exp_avg and exp_avg_sq."""
        for key, value in state.items():
            of_parameter = isinstance(value, torch.Tensor) and value.shape == parameter.shape
            if of_parameter and (key != "step" or value.dim()):
                self._capture.tensor(f"moment/{key}/{name}", value)

    def _record(self, name: str, before: torch.Tensor, after: torch.Tensor) -> None:
        plan = self._recorder.planner.plan(f"update/{name}")
        if plan is None:
            return
        with torch.no_grad():
            # At least float32, because the difference of two bfloat16 numbers is seldom representable as one.
            dtype = torch.float32 if after.dtype.itemsize == 1 else torch.promote_types(after.dtype, torch.float32)
            before = before.to(dtype)
            update = after.to(dtype) - before
            norm = torch.linalg.vector_norm(update)
            ratio = norm / torch.linalg.vector_norm(before)
            if update.numel():  # also of a parameter that is all zeros, as in the first step of a warm-up
                ratio = torch.where(norm == 0, norm, ratio)
        self._capture.planned(plan, update)
        if name not in self._ratios:
            self._ratios[name] = Plan(f"update_ratio/{name}", plan.collections, raw=True)
        self._capture.planned(self._ratios[name], ratio)
