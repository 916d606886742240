"""The scikit-learn hook does what every hook must."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.datasets import load_breast_cancer
from sklearn.neural_network import MLPRegressor

import tensortrial.hooks.sklearn as tt
from support.hook_conformance import HookConformance, Job
from tensortrial.mode import ModeKeys, modes

X, Y = load_breast_cancer(return_X_y=True)
X = (X - X.mean(0))[:100, :5]
Y = Y[:100].astype(float)


class MLPJob(Job):
    def __init__(self, hook: Any) -> None:
        self.hook, self.model = hook, MLPRegressor(hidden_layer_sizes=(3,), random_state=0)

    def train(self, steps: int, mode: ModeKeys | None = None) -> list[dict[str, Any]]:
        if mode is not None:
            self.hook.set_mode(mode)
        seen = []
        for _ in range(steps):
            if mode is not modes.EVAL:
                self.model.partial_fit(X, Y)
            if self.hook is not None:
                with self.hook.step():
                    self.hook.save_model(self.model)
            seen.append({"loss_": np.float64(self.model.loss_), "coefs_/0": self.model.coefs_[0].copy()})
        return seen

    def parts(self) -> list[Any]:
        return [self.model]


class TestSklearn(HookConformance):
    module, framework = tt, "sklearn"
    number, defaults = "loss_", ("losses", "metrics")
    tensor, collection, gradient = "coefs_/0", "weights", None
    interval, step_stays_open = 1, False

    def make_job(self, hook: Any) -> MLPJob:
        return MLPJob(hook)

    def make_hook(self, out_dir: str, **options: Any) -> Any:
        # Without a choice, weights are saved.
        options.setdefault("include_collections", [])
        return super().make_hook(out_dir, **options)
