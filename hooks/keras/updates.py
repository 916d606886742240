"""The updates of a step: the change of each trainable weight, and its size relative to the weight."""

from __future__ import annotations

import numpy as np

from tensortrial.config.collection import CollectionKeys
from tensortrial.config.reduction_config import ReductionConfig
from tensortrial.dtypes import Array
from tensortrial.format.record import Plan
from tensortrial.mode import ModeKeys
from tensortrial.statistics.blocks import nature

from ..core.recorder import Recorder
from .backend import variable_array
from .names import Names, Weight
from .replicas import LeadingRecorder
from .strategy import value_of

DUE_WITH = frozenset({CollectionKeys.UPDATES, CollectionKeys.HEALTH})
"""The collections that include updates."""


class Updates:
    """The updates of weights by the batches of `fit`. Weights are copied only at steps at which updates are due."""

    def __init__(self, recorder: LeadingRecorder) -> None:
        self._recorder = recorder
        self._before: dict[str, tuple[Plan, Weight, list[Array]]] = {}
        updates = recorder.collections.require(CollectionKeys.UPDATES)
        updates.include("^update/")
        updates.reduction_config = ReductionConfig(norms=["l2"])

    def begin(self, names: Names) -> None:
        """Copy the weights whose update is due at the open step, by the collection `updates` or `health`.

        `save_all` and a user's regular expression do not include updates.

        Args:
            names: The names of the model. Weights that were copied in this step are not copied again.
        """
        if self._recorder.clock.mode is not ModeKeys.TRAIN or not self._recorder.planner.due & DUE_WITH:
            return
        for weight in names.trained():
            plan = self._recorder.planner.plan(f"update/{weight.name}")
            if plan is not None and weight.name not in self._before:
                self._before[weight.name] = plan, weight, self._values(weight)

    def end(self) -> None:
        """Record the changes of the step, and free the copies."""
        for plan, weight, befores in self._before.values():
            for recorder, before, after in zip(self._recorder.all, befores, self._values(weight), strict=True):
                _record(recorder, plan, weight.name, before, after)
        self.forget()

    def forget(self) -> None:
        """Free the copies."""
        self._before.clear()

    def _values(self, weight: Weight) -> list[Array]:
        return [variable_array(value_of(number, weight.variable)) for number in range(len(self._recorder.all))]


def record_update(recorder: Recorder, name: str, before: Array, after: Array) -> None:
    """Record the update of a weight, and its ratio to the weight, if they are due."""
    plan = recorder.planner.plan(f"update/{name}")
    if plan is not None:
        _record(recorder, plan, name, before, after)


def _record(recorder: Recorder, plan: Plan, name: str, before: Array, after: Array) -> None:
    if nature(before.dtype) == "real":
        update, ratio = _difference(before, after)
        recorder.record(plan, update, owned=True)
        recorder.record(Plan(f"update_ratio/{name}", plan.collections, raw=True), ratio, owned=True)


def _difference(before: Array, after: Array) -> tuple[Array, Array]:
    """Return the update, and its L2 norm divided by that of the weight."""
    # At least float32, because the difference of two bfloat16 numbers is seldom representable as one.
    dtype = np.float64 if before.dtype == np.float64 else np.float32
    before = before.astype(dtype)
    update = after.astype(dtype) - before
    with np.errstate(all="ignore"):
        norm = np.linalg.norm(update.ravel())
        ratio = norm / np.linalg.norm(before.ravel())
    # Also of a weight that is all zeros, as in the first step of a warm-up.
    return update, np.asarray(0 if update.size and norm == 0 else ratio, np.float64)
