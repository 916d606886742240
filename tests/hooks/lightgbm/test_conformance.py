"""The LightGBM hook does what every hook must."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

lgb = pytest.importorskip("lightgbm")
datasets = pytest.importorskip("sklearn.datasets")
import tensortrial.hooks.lightgbm as tt  # noqa: E402
from support.hook_conformance import HookConformance, Job  # noqa: E402
from tensortrial.mode import ModeKeys, modes  # noqa: E402

PARAMETERS = {"objective": "binary", "num_leaves": 7, "verbose": -1, "num_threads": 1, "deterministic": True}
X, Y = datasets.load_breast_cancer(return_X_y=True)


class LightGBMJob(Job):
    def __init__(self, hook: Any) -> None:
        self.hook, self.booster = hook, None

    def train(self, steps: int, mode: ModeKeys | None = None) -> list[dict[str, Any]]:
        if mode is not None:
            self.hook.set_mode(mode)
        seen: list[dict[str, Any]] = []

        def recall(env: Any) -> None:
            trees = env.model.trees_to_dataframe()
            values = trees[trees.tree_index == env.iteration]["value"].to_numpy()
            seen.append({"validation-binary_logloss": env.evaluation_result_list[0][2], "trees/value": values})

        training = lgb.Dataset(X[::2], Y[::2], free_raw_data=False)
        booster = lgb.train(
            PARAMETERS,
            training,
            steps,
            valid_sets=[training.create_valid(X[1::2], Y[1::2])],
            valid_names=["validation"],
            callbacks=[recall, *([self.hook] if self.hook is not None else [])],
            init_model=self.booster,
        )
        if mode is not modes.EVAL:
            self.booster = booster
        return seen

    def parts(self) -> list[Any]:
        return [self.booster]


class TestLightGBM(HookConformance):
    module, framework = tt, "lightgbm"
    number, defaults = "validation-binary_logloss", ("metrics",)
    growing = ("feature_importance",)
    tensor, collection, gradient = "trees/value", "trees", None
    interval, step_stays_open = 10, False

    def make_job(self, hook: Any) -> LightGBMJob:
        return LightGBMJob(hook)


def test_the_values_are_an_array() -> None:
    assert np.shape(LightGBMJob(None).train(1)[0]["trees/value"]) == (13,)
