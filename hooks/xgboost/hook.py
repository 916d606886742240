"""The hook for XGBoost, a training callback.

import tensortrial.hooks.xgboost as tt

hook = tt.Hook("runs/trees", include_collections=["feature_importance"])
xgboost.train(params, dtrain, 100, evals=[(dtrain, "train"), (dvalid, "validation")], callbacks=[hook])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from tensortrial.config.collection import CollectionKeys
from tensortrial.dtypes import Array
from tensortrial.errors import UnsupportedValue, importing

from ..core import current_hook
from ..core.configuration.options import HookOptions, accepts_fields_of
from ..core.process.rank import Rank, rank_of_process
from ..core.recorder import guarded
from ..library.boosting_hook import PATTERNS, BoostingHook, boosting_framework

with importing("xgboost", "xgboost", "the XGBoost hook"):
    import xgboost as xgb

from .data import DataSet
from .importance import Importances, mean_importances
from .metrics import is_loss, latest_metrics
from .names import Names
from .parameters import booster_parameters, check_parameters
from .trees import newest_trees

_PATTERNS = {
    **PATTERNS,
    CollectionKeys.PREDICTIONS: "^predictions$",
    CollectionKeys.LABELS: "^labels$",
    CollectionKeys.AVERAGE_SHAP: "^average_shap/",
    CollectionKeys.FULL_SHAP: "^full_shap(/|$)",
}

_FRAMEWORK = boosting_framework("xgboost", xgb.__version__, _PATTERNS)


@dataclass(frozen=True)
class Options(HookOptions):
    """The arguments that only the XGBoost hook has.

    Args:
        hyperparameters: The values to save as `hyperparameters/<name>`, a dictionary or pairs. Default: the booster's
            own.
        train_data: The data that SHAP values are computed on: a DMatrix, an array, a DataFrame or a sparse matrix, or a
            pair (data, labels).
        validation_data: The data whose predictions and labels are saved, of the same types.
    """

    hyperparameters: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None
    train_data: Any = None
    validation_data: Any = None


class Hook(BoostingHook, xgb.callback.TrainingCallback):
    """A hook that saves the metrics, predictions and model of an XGBoost job.

    It is a callback of `xgboost.train`, of scikit-learn's estimators and of `xgboost.cv`. Each boosting round is a
    step.

    `help(Hook.__init__)` lists the arguments: those of every hook, and `hyperparameters`, `train_data` and
    `validation_data`. By default the metrics of every round are saved, and the feature importance at a growing
    interval. After construction no error of the hook reaches training: the hook logs the first one and turns itself off
    (TENSORTRIAL_STRICT=1 raises it instead).

    Raises:
        ConfigurationError: An argument has an invalid value.
        RunExists: out_dir holds a run already.
    """

    @accepts_fields_of(Options)
    def __init__(self, options: Options) -> None:
        self._open(options, _FRAMEWORK, _rank, _PATTERNS)
        self.hyperparameters = options.hyperparameters
        self.train_data = options.train_data
        self.validation_data = options.validation_data
        self._names: Names | None = None
        self._importances = Importances()
        self._rounds_before = 0
        self._open_round: tuple[int, Any] | None = None
        current_hook.made(self)

    @classmethod
    def hook_from_config(cls, json_file_path: str | None = None) -> Self:
        """Return a hook from a JSON configuration. This is an alias of `create_from_json_file`.

        Set data and hyperparameters afterwards: `hook.validation_data = dvalid`.

        Args:
            json_file_path: The configuration file; None for the one that an environment variable names.
        """
        return cls.create_from_json_file(json_file_path)

    # Attributes that users set.

    @property
    def hyperparameters(self) -> dict[str, Any] | None:
        """The values of `hyperparameters/<name>`; None for those of the booster. Set it to a dictionary or pairs."""
        return self._hyperparameters

    @hyperparameters.setter
    def hyperparameters(self, value: Mapping[str, Any] | Iterable[tuple[str, Any]] | None) -> None:
        self._hyperparameters = check_parameters(value)

    @property
    def train_data(self) -> xgb.DMatrix | None:
        """The data for SHAP values, as a DMatrix. It can be set to any value of the argument `train_data`."""
        return self._train.matrix if self._train else None

    @train_data.setter
    def train_data(self, value: Any) -> None:
        self._train = self._data_set("train_data", value)

    @property
    def validation_data(self) -> xgb.DMatrix | None:
        """The data for predictions and labels, as a DMatrix. It can be set to any value of `validation_data`."""
        return self._validation.matrix if self._validation else None

    @validation_data.setter
    def validation_data(self, value: Any) -> None:
        self._validation = self._data_set("validation_data", value)

    # Methods that XGBoost calls. `model` is a Booster, or in `xgboost.cv` an object with the boosters of all folds.

    def before_training(self, model: Any) -> Any:
        self._begin_training(model)
        return model

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self._open_round = epoch, evals_log
        return False

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self._open_round = None
        self._end_round(model, evals_log)
        return False

    def after_training(self, model: Any) -> Any:
        if self._open_round is not None:
            # A callback before this one ended training, so `after_iteration` was not called for the last round.
            (epoch, evals_log), self._open_round = self._open_round, None
            # That earlier callback may also have reduced the model to its best round.
            is_whole = model.num_boosted_rounds() == self._rounds_before + epoch + 1
            # A callback after this one may have ended training before the round.
            if is_whole or any(len(values) > epoch for metrics in evals_log.values() for values in metrics.values()):
                self._end_round(model if is_whole else None, evals_log)
        return model

    @guarded
    def _let_go(self) -> None:
        self._train = self._validation = self._open_round = None

    # Rounds.

    @guarded
    def _begin_training(self, model: Any) -> None:
        self._open_round = None
        self._names, self._importances = None, Importances()
        self.recorder.warn_if_copy()
        if self.recorder.active:
            self._rounds_before = model.num_boosted_rounds()
            self._begin_at(self._rounds_before)

    @guarded
    def _end_round(self, model: Any, evals_log: Any) -> None:
        """Save a round as a step, after it has ended. Without a model, save only its metrics."""
        metrics = latest_metrics(evals_log)
        self._save_round(metrics, filter(is_loss, metrics), lambda: self._capture(model, bool(metrics)))

    # Capturing. Tensors are computed only if they are due.

    def _capture(self, model: Any, has_metrics: bool) -> None:
        if not has_metrics and self._is_due_now(CollectionKeys.METRICS):
            self.recorder.failures.warn_once(
                "no metrics are saved, because there is no evaluation set; pass `evals` to xgboost.train, or "
                "`eval_set` to fit"
            )
        if model is not None:
            self._capture_model(model)

    def _capture_model(self, model: Any) -> None:
        folds = getattr(model, "cvfolds", None)
        boosters = [model] if folds is None else [fold.bst for fold in folds]
        if self._names is None:
            self._names = Names(boosters[0])
        names = self._names
        self._capture_hyperparameters(boosters[0], names)
        self._capture_importances(boosters, names)
        if folds is None:
            self._capture_predictions(model)
            self._capture_shap(model, names)
            self._capture_trees(model, names)
        elif self._is_due(names.of_one_model):
            self.recorder.failures.warn_once(
                "no predictions, labels, SHAP values and trees are saved of a cross-validation, which has several "
                "models; train one model by xgboost.train to save them"
            )

    def _capture_hyperparameters(self, booster: xgb.Booster, names: Names) -> None:
        parameters = self._hyperparameters
        if parameters is None:
            # Hyperparameters may change: a callback can set the learning rate.
            parameters = booster_parameters(booster) if self._is_due(names.hyperparameters) else {}
        self._record_hyperparameters(parameters)

    def _capture_importances(self, boosters: Sequence[xgb.Booster], names: Names) -> None:
        types = [type_ for type_, its_names in names.importances.items() if self._is_due(its_names)]
        if names.is_linear and types != ["weight"]:
            if types:
                self.recorder.failures.warn_once(
                    "only the feature importance `weight` is saved, because a linear model has no other"
                )
            types = ["weight"] if "weight" in types else []
        if not types:
            return
        one = len(boosters) == 1
        scored = self._importances.compute(boosters[0], types) if one else mean_importances(boosters, types)
        for its_names, scores in scored:
            self._record_numbers(its_names, scores)

    def _capture_predictions(self, booster: xgb.Booster) -> None:
        due = [name for name in ("predictions", "labels") if self._is_due([name])]
        data = self._validation
        if data is None:
            if due:
                self.recorder.failures.warn_once(
                    f"no {' and '.join(due)} are saved, because the hook has no validation_data; set "
                    "hook.validation_data before training"
                )
            return
        for name in due:
            with self._skipping_unsupported(name):
                self._record(name, data.labels if name == "labels" else data.predict(booster))

    def _capture_shap(self, booster: xgb.Booster, names: Names) -> None:
        data = self._train
        if not self._is_due(names.shap):
            return
        if data is None:
            self.recorder.failures.warn_once(
                "no SHAP values are saved, because the hook has no train_data; set hook.train_data before training"
            )
            return
        with self._skipping_unsupported("full_shap" if self._is_due(names.full_shap) else "average_shap"):
            values = data.predict(booster, contributions=True)
            self._record_full_shap(names.full_shap_columns, values)
            if self._is_due(names.average_shap):
                # The last column is the bias.
                means = np.abs(values[..., :-1]).mean(axis=0, dtype=np.float64)
                self._record_numbers(names.average_shap, means.T.tolist())

    def _record_full_shap(self, columns: Iterable[str], values: Array) -> None:
        """Record the SHAP values of all features together and of each feature. The last column is the bias."""
        self._record("full_shap", values)
        for number, name in enumerate(columns):
            self._record(name, values[..., number])

    def _capture_trees(self, booster: xgb.Booster, names: Names) -> None:
        if self._is_due(names.trees):
            with self._skipping_unsupported("trees"):
                for column, values in newest_trees(booster, names.features).items():
                    self._record(f"trees/{column}", values)

    # Recording.

    def _is_due_now(self, collection: str) -> bool:
        config, step = self.recorder.collections.require(collection).save_config, self.recorder.clock.step
        return config is not None and step is not None and config.should_save_step(step.mode, step.mode_step)

    @contextmanager
    def _skipping_unsupported(self, name: str) -> Iterator[None]:
        """Log an UnsupportedValue of the block, and continue the step without the tensor."""
        try:
            yield
        except UnsupportedValue as exc:
            self.recorder.refuse(name, exc)

    def _data_set(self, name: str, value: Any) -> DataSet | None:
        # In a distributed job all workers create a DMatrix together, including those that save nothing.
        if value is None or not (self.recorder.active or xgb.collective.is_distributed()):
            return None
        return DataSet(name, value)


get_hook = current_hook.getter(Hook.create_from_json_file)


def _rank() -> Rank:
    if xgb.collective.is_distributed():
        return Rank(xgb.collective.get_rank(), xgb.collective.get_world_size())
    return rank_of_process()
