"""The hook for CatBoost, a callback.

import tensortrial.hooks.catboost as tt

hook = tt.Hook("runs/trees")
model.fit(x, y, eval_set=(held_x, held_y), callbacks=[hook])
hook.save_model(model)
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from tensortrial.config.collection import CollectionKeys
from tensortrial.errors import importing, shown

from ..core import current_hook
from ..core.configuration.options import HookOptions, accepts_fields_of
from ..core.process.rank import rank_of_process
from ..core.recorder import guarded
from ..library.boosting_hook import BoostingHook, as_array, boosting_framework
from ..library.versions import check_version

with importing("catboost", "catboost", "the CatBoost hook"):
    import catboost

from .trees import splits_of

OLDEST_CATBOOST, NEWEST_TESTED_CATBOOST = "1.0", "1.2"

# Metrics that increase as the model improves. All others, including a user's, are treated as losses.
_RISING = re.compile(
    r"^(AUC|QueryAUC|PRAUC|NormalizedGini|Accuracy|BalancedAccuracy|CtrFactor|Precision|Recall|F1|F|TotalF1|MCC|Kappa|"
    r"WKappa|R2|NDCG|DCG|MAP|MRR|ERR|PFound|PrecisionAt|RecallAt|AverageGain|QueryAverage|UserPerObjMetric)\b"
)

_FRAMEWORK = boosting_framework("catboost", catboost.__version__)


class Hook(BoostingHook):
    """A hook that saves the metrics and the model of a CatBoost job.

    It is a callback of `fit`. Each boosting round is a step. CatBoost passes metrics to a callback, and no model:
    `save_model` saves the feature importance and the trees after `fit`, and `save_cv_results` the metrics of
    `catboost.cv`, which takes no callback.

    `help(Hook.__init__)` lists the arguments, which every hook has. By default the metrics of every round are saved.
    After construction no error of the hook reaches training: the hook logs the first one and turns itself off
    (TENSORTRIAL_STRICT=1 raises it instead).

    Raises:
        ConfigurationError: An argument has an invalid value.
        RunExists: out_dir holds a run already.
        UnsupportedFramework: CatBoost is too old.
    """

    @accepts_fields_of(HookOptions)
    def __init__(self, options: HookOptions) -> None:
        check_version("catboost", catboost.__version__, OLDEST_CATBOOST, NEWEST_TESTED_CATBOOST)
        self._open(options, _FRAMEWORK, rank_of_process)
        self._iteration = -1
        self._values: dict[str, list[float]] = {}
        """The values of each metric in the training so far."""
        current_hook.made(self)

    def after_iteration(self, info: Any) -> bool:
        """Save a round. CatBoost calls this after each.

        Args:
            info: CatBoost's argument: `iteration`, from 1, and `metrics`, with the values of all rounds.

        Returns:
            True, so that training continues.
        """
        self._end_round(info)
        return True

    @guarded
    def save_model(self, model: Any) -> None:
        """Save the feature importance, the trees and the hyperparameters of a trained model, at the last step.

        The save configuration is ignored. The tensors are:

        - `feature_importance/default/<feature>`, of the type PredictionValuesChange, the default except for ranking;
        - `trees/leaf_values`, `leaf_counts`, and `leaf_weights` if the model has weights;
        - `trees/split_tree`, `split_type`, `split_feature`, `split_border`; of trees that are not symmetric also
          `split_left` and `split_right`;
        - `hyperparameters/<name>`.

        Args:
            model: A CatBoost model after `fit`.
        """
        if not isinstance(model, catboost.CatBoost) or not model.is_fitted():
            self.recorder.refuse_call("save_model", f"it takes a CatBoost model after fit, got {shown(model)}")
            return
        self._save_last_round(model.get_evals_result())
        last = self.recorder.clock.newest().get(self.mode, -1)
        step = max(last, 0)
        # The default of a ranking model needs its training data.
        importances = model.get_feature_importance(type="PredictionValuesChange")
        for feature, importance in zip(model.feature_names_, importances, strict=True):
            self.save_scalar(f"feature_importance/default/{feature}", importance, step=step)
        leaves = {"leaf_values": model.get_leaf_values(), "leaf_counts": model.get_tree_leaf_counts()}
        with contextlib.suppress(AssertionError):  # CatBoost raises this for a model without weights
            leaves["leaf_weights"] = model.get_leaf_weights()
        leaves.update(splits_of(model))  # trees whose splits refer to leaves also have the leaves, in this order
        for column, values in leaves.items():
            self.recorder.save_tensor(f"trees/{column}", as_array(values), CollectionKeys.TREES, step=step)
        for name, value in model.get_all_params().items():
            self.recorder.save_tensor(
                f"hyperparameters/{name}", as_array(value), CollectionKeys.HYPERPARAMETERS, step=step
            )

    @guarded
    def save_cv_results(self, results: Any) -> None:
        """Save the metrics that `catboost.cv` returns, each round as a step: `test-Logloss-mean`, `test-Logloss-std`.

        Args:
            results: A DataFrame, or a dictionary of lists with `as_pandas=False`.
        """
        columns = results if isinstance(results, Mapping) else getattr(results, "to_dict", lambda _: None)("list")
        if not isinstance(columns, Mapping):
            self.recorder.refuse_call("save_cv_results", f"it takes what catboost.cv returns, got {shown(results)}")
            return
        metrics = {name: list(values) for name, values in columns.items() if name != "iterations"}
        for row in range(min(map(len, metrics.values()), default=0)):
            self._save_metrics({name: values[row] for name, values in metrics.items()})

    @guarded
    def _end_round(self, info: Any) -> None:
        begins = info.iteration != self._iteration + 1 or info.iteration == 1
        self._iteration = info.iteration
        if begins:
            self.recorder.warn_if_copy()
        if not self.recorder.active:
            return
        found = _by_name(info.metrics)
        if begins:
            # A training that continues from a snapshot has the values of its earlier rounds.
            self._begin_at(info.iteration - 1)
            self._values = {name: values[: info.iteration - 1] for name, values in found.items()}
        # With `metric_period`, not every round has new values.
        metrics = {name: values[-1] for name, values in found.items() if len(values) > len(self._values.get(name, ()))}
        self._values = found
        self._save_metrics(metrics)

    def _save_last_round(self, results: Mapping[str, Mapping[str, list[float]]]) -> None:
        """Save the last round, if an earlier callback has ended training after it."""
        found = _by_name(results)
        if not all(_begins_with(found.get(name, []), values) for name, values in self._values.items()):
            return  # the results are those of another training
        metrics = {name: found[name][-1] for name, seen in self._values.items() if len(found[name]) == len(seen) + 1}
        if metrics:
            self._values = found
            self._save_metrics(metrics)

    def _save_metrics(self, metrics: Mapping[str, float]) -> None:
        losses = [name for name in metrics if not _RISING.match(name.partition("-")[2]) and not name.endswith("-std")]
        self._save_round(metrics, losses, lambda: None)


def _begins_with(values: list[float], first: list[float]) -> bool:
    return np.array_equal(values[: len(first)], first, equal_nan=True)


def _by_name(metrics: Mapping[str, Mapping[str, list[float]]]) -> dict[str, list[float]]:
    """Return the values of each metric and evaluation set, by the name of their tensor."""
    return {f"{data}-{metric}": list(values) for data, found in metrics.items() for metric, values in found.items()}


get_hook = current_hook.getter(Hook.create_from_json_file)
