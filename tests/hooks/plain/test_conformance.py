"""The smallest hook does what every hook must, and shows what is the same for all of them; a plain run saves alike."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tensortrial.hooks.core.current_hook
from support import array_hook
from support.array_hook import GRADIENT, LOSS, WEIGHT
from support.hook_conformance import BindingTests, CallTests, CoreConformance, Job, LifeTests
from tensortrial import Run, create_trial
from tensortrial.mode import ModeKeys, modes

X = np.linspace(-1, 1, 12).reshape(6, 2)
Y = X @ np.array([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]])


class ArrayJob(Job):
    """Fits a matrix to data by gradient descent."""

    def __init__(self, hook: Any) -> None:
        self.hook, self.weight = hook, np.full((2, 3), 0.5)

    def train(self, steps: int, mode: ModeKeys | None = None) -> Sequence[Mapping[str, Any]]:
        if mode is not None:
            self.hook.set_mode(mode)
        return [self.step(mode is not modes.EVAL) for _ in range(steps)]

    def step(self, updates: bool) -> Mapping[str, Any]:
        error = X @ self.weight - Y
        values = {LOSS: np.float64((error**2).mean()), WEIGHT: self.weight.copy(), "error": error}
        if updates:
            values[GRADIENT] = X.T @ error / len(X)
        self.save(values)
        if updates:
            self.weight -= 0.1 * values[GRADIENT]
        return values

    def save(self, values: Mapping[str, Any]) -> None:
        if self.hook is not None:
            self.hook.capture({name: np.asarray(value) for name, value in values.items()})


class RunJob(ArrayJob):
    def save(self, values: Mapping[str, Any]) -> None:
        with self.hook.step():
            self.hook.log({LOSS: values[LOSS]})
            self.hook.save_tensor(WEIGHT, values[WEIGHT], "weights")


class TestArrayHook(BindingTests, CoreConformance):
    module, framework = array_hook, "arrays"
    number, tensor, gradient = LOSS, WEIGHT, GRADIENT

    def make_job(self, hook: Any) -> ArrayJob:
        return ArrayJob(hook)


class TestRun(CallTests, LifeTests):
    module: ModuleType = tensortrial.hooks.core.current_hook
    framework = "none"
    number, tensor, gradient = LOSS, WEIGHT, None
    step_stays_open = False

    def make_hook(self, out_dir: str, **options: Any) -> Run:
        return Run(out_dir, **options)

    def make_job(self, hook: Any) -> RunJob:
        return RunJob(hook)

    @pytest.mark.parametrize(
        "copied",
        [copy.copy, copy.deepcopy, lambda run: pickle.loads(pickle.dumps(run))],
        ids=["copy", "deep", "pickle"],
    )
    def test_a_copy_of_a_run_saves_nothing_and_warns_once(
        self, hook: Any, out: str, copied: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        run = hook()
        twin = copied(run)
        assert type(twin) is Run
        assert (twin.out_dir, twin.recorder.active) == (out, False)
        twin.log({"x": 1.0})
        twin.save_tensor("y", np.ones(2), step=3)
        run.log({"x": 2.0})
        twin.close()
        (message,) = [record.getMessage() for record in caplog.records if record.name == "tensortrial.hooks"]
        assert f"a copy of the hook of {out}" in message
        run.close()
        assert create_trial(out).tensor("x").value(0) == 2
