"""The XGBoost hook does what every hook must."""

from __future__ import annotations

from typing import Any

import pytest

xgb = pytest.importorskip("xgboost")
import tensortrial.hooks.xgboost as tt  # noqa: E402
from support.boosting import PARAMETERS, cancer  # noqa: E402
from support.hook_conformance import HookConformance, Job  # noqa: E402
from tensortrial.mode import ModeKeys, modes  # noqa: E402


class Recall(xgb.callback.TrainingCallback):
    """Remembers each round's metric and predictions."""

    def __init__(self, data: Any) -> None:
        super().__init__()
        self.data, self.seen = data, []

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        number = evals_log["validation"]["logloss"][-1]
        self.seen.append({"validation-logloss": number, "predictions": model.predict(self.data)})
        return False


class XGBoostJob(Job):
    def __init__(self, hook: Any) -> None:
        self.hook, self.data, self.booster = hook, cancer(), None
        if hook is not None:
            hook.validation_data = self.data[1]

    def train(self, steps: int, mode: ModeKeys | None = None) -> list[dict[str, Any]]:
        if mode is not None:
            self.hook.set_mode(mode)
        training, validation = self.data
        recall = Recall(validation)
        booster = xgb.train(
            PARAMETERS,
            training,
            steps,
            evals=[(validation, "validation")],
            callbacks=[recall, *([self.hook] if self.hook is not None else [])],
            verbose_eval=False,
            xgb_model=self.booster,
        )
        if mode is not modes.EVAL:
            self.booster = booster
        return recall.seen

    def parts(self) -> list[Any]:
        return [*self.data, self.booster]


class TestXGBoost(HookConformance):
    module, framework = tt, "xgboost"
    number, defaults = "validation-logloss", ("metrics",)
    growing = ("feature_importance",)
    tensor, collection, gradient = "predictions", "predictions", None
    interval, step_stays_open = 10, False

    def make_job(self, hook: Any) -> XGBoostJob:
        return XGBoostJob(hook)
