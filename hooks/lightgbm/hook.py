"""The hook for LightGBM, a callback.

import tensortrial.hooks.lightgbm as tt

hook = tt.Hook("runs/trees", include_collections=["feature_importance"])
lightgbm.train(params, training, 100, valid_sets=[training, validation], callbacks=[hook])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensortrial.errors import importing

from ..core import current_hook
from ..core.configuration.options import HookOptions, accepts_fields_of
from ..core.process.rank import rank_of_process
from ..core.recorder import guarded
from ..library.boosting_hook import BoostingHook, boosting_framework
from ..library.versions import check_version

with importing("lightgbm", "lightgbm", "the LightGBM hook"):
    import lightgbm as lgb

from .trees import COLUMNS, newest_trees

OLDEST_LIGHTGBM, NEWEST_TESTED_LIGHTGBM = "4.6", "4.7"

_FRAMEWORK = boosting_framework("lightgbm", lgb.__version__)


class Hook(BoostingHook):
    """A hook that saves the metrics and the model of a LightGBM job.

    It is a callback of `lightgbm.train`, of `lightgbm.cv` and of the `fit` of scikit-learn's estimators. Each boosting
    round is a step.

    `help(Hook.__init__)` lists the arguments, which every hook has. By default the metrics of every round are saved,
    and the feature importance at a growing interval. After construction no error of the hook reaches training: the hook
    logs the first one and turns itself off (TENSORTRIAL_STRICT=1 raises it instead).

    Raises:
        ConfigurationError: An argument has an invalid value.
        RunExists: out_dir holds a run already.
        UnsupportedFramework: LightGBM is too old.
    """

    order = 20
    """LightGBM calls callbacks in ascending order. Early stopping, which may end the round, has 30."""
    before_iteration = False

    @accepts_fields_of(HookOptions)
    def __init__(self, options: HookOptions) -> None:
        check_version("lightgbm", lgb.__version__, OLDEST_LIGHTGBM, NEWEST_TESTED_LIGHTGBM)
        self._open(options, _FRAMEWORK, rank_of_process)
        current_hook.made(self)

    @guarded
    def __call__(self, env: Any) -> None:
        """Save a round. LightGBM calls this after each.

        Args:
            env: LightGBM's CallbackEnv.
        """
        begins = env.iteration == env.begin_iteration
        if begins:
            self.recorder.warn_if_copy()
        if not self.recorder.active:
            return
        if begins:
            self._begin_at(env.iteration)
        metrics: dict[str, float] = {}
        losses: list[str] = []
        for each in env.evaluation_result_list or ():
            data, metric, value, is_higher_better, deviation = _result(each)
            name = f"{data}-{metric}" if deviation is None else f"{data}-{metric}-mean"
            metrics[name] = value
            if deviation is not None:
                metrics[f"{data}-{metric}-std"] = deviation
            if not is_higher_better:
                losses.append(name)
        self._save_round(metrics, losses, lambda: self._capture(env, bool(metrics)))

    def _capture(self, env: Any, has_metrics: bool) -> None:
        if not has_metrics:
            self.recorder.failures.warn_once(
                "no metrics are saved, because there is no evaluation set; pass `valid_sets` to lightgbm.train, or "
                "`eval_set` to fit"
            )
        self._record_hyperparameters(env.params)
        is_cv = hasattr(env.model, "boosters")
        boosters: Sequence[Any] = env.model.boosters if is_cv else [env.model]
        features = boosters[0].feature_name()
        for kind in ("gain", "split"):
            self._record_importances(
                kind,
                features,
                lambda kind=kind: np.mean(  # type: ignore[misc]
                    [booster.feature_importance(kind, iteration=-1) for booster in boosters], axis=0
                ),
            )
        if not self._is_due(f"trees/{column}" for column in COLUMNS):
            return
        if is_cv:
            self.recorder.failures.warn_once(
                "no trees are saved of a cross-validation, which has several models; train one model by lightgbm.train "
                "to save them"
            )
            return
        for column, values in newest_trees(env.model, env.iteration, features).items():
            self._record(f"trees/{column}", values)


def _result(result: Any) -> tuple[str, str, float, bool, float | None]:
    """Return data set, metric, value, whether higher is better, and the deviation over the folds of a result."""
    if hasattr(result, "metric_name"):
        deviation = result.metric_std_dev
        return result.dataset_name, result.metric_name, result.metric_value, result.maximize, deviation
    data, metric, value, is_higher_better, *deviations = result  # before 4.7
    return data, metric, value, is_higher_better, deviations[0] if deviations else None


get_hook = current_hook.getter(Hook.create_from_json_file)
