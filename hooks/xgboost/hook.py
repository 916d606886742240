"""The XGBoost hook, a callback.

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

from tensortrial.config.collection import Collection, CollectionKeys
from tensortrial.config.reduction_config import ReductionConfig
from tensortrial.config.save_config import SaveConfig, SaveConfigMode
from tensortrial.dtypes import Array
from tensortrial.errors import MissingExtra, UnsupportedValue
from tensortrial.mode import ModeKeys, modes

from ..core import current_hook
from ..core.base_hook import BaseHook, create_trial, guarded
from ..core.current_hook import del_hook, set_hook
from ..core.options import Framework, HookOptions, accepts_fields_of
from ..core.rank import Rank, rank_of_process
from ..core.recorder import Recorder, logger
from ..core.user_values import array_of

try:
    import xgboost as xgb
except ImportError as exc:
    raise MissingExtra("xgboost", "xgboost", "the XGBoost hook") from exc

from .data import DataSet
from .importance import Importances, mean_importances
from .metrics import is_loss, latest_metrics
from .names import Names
from .parameters import as_array, booster_parameters, check_parameters
from .trees import newest_trees

__all__ = [
    "Collection",
    "CollectionKeys",
    "Hook",
    "ModeKeys",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "create_trial",
    "del_hook",
    "get_hook",
    "modes",
    "set_hook",
]

SAVE_INTERVAL = 10

# What is in each collection. Those of metrics and losses are told by name.
_REGEXES = {
    CollectionKeys.METRICS: "",
    CollectionKeys.LOSSES: "",
    CollectionKeys.SM_METRICS: "",
    CollectionKeys.HYPERPARAMETERS: "^hyperparameters/",
    CollectionKeys.PREDICTIONS: "^predictions$",
    CollectionKeys.LABELS: "^labels$",
    CollectionKeys.FEATURE_IMPORTANCE: "^feature_importance/",
    CollectionKeys.AVERAGE_SHAP: "^average_shap/",
    CollectionKeys.FULL_SHAP: "^full_shap(/|$)",
    CollectionKeys.TREES: "^trees/",
}


_FRAMEWORK = Framework(
    "xgboost",
    {"xgboost": xgb.__version__},
    builtin=_REGEXES,
    always_saved=[CollectionKeys.METRICS],
    save_interval=SAVE_INTERVAL,
)


@dataclass(frozen=True)
class Options(HookOptions):
    """The arguments that only the XGBoost hook has.

    Args:
        hyperparameters: What is saved as `hyperparameters/<name>`, a dictionary or pairs. Default: the booster's own.
        train_data: The data that SHAP values are computed on: a DMatrix, an array, a DataFrame or a sparse matrix, or a
            pair (data, labels).
        validation_data: The data that predictions and labels are of, of the same types.
    """

    hyperparameters: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None
    train_data: Any = None
    validation_data: Any = None


class Hook(BaseHook, xgb.callback.TrainingCallback):
    """A hook that saves what an XGBoost job learns: a callback of `xgboost.train`, of scikit-learn's estimators and of
    `xgboost.cv`. Each boosting round is a step.

    `help(Hook.__init__)` lists the arguments: those of every hook, and `hyperparameters`, `train_data` and
    `validation_data`. The metrics are always saved; by default every tenth step is. After construction no error of the
    hook reaches training: the hook logs the first one and turns itself off (TENSORTRIAL_STRICT=1 raises it instead).

    Raises:
        ConfigurationError: An argument has a value that it cannot have.
        RunExists: out_dir holds a run already.
    """

    @accepts_fields_of(Options)
    def __init__(self, options: Options) -> None:
        self.recorder = Recorder(options, _FRAMEWORK, _rank)
        for name, regex in _REGEXES.items():
            if regex:
                self.recorder.collections.require(name).include(regex)
        self.hyperparameters = options.hyperparameters
        self.train_data = options.train_data
        self.validation_data = options.validation_data
        self._metrics: set[str] = set()
        self._names: Names | None = None
        self._importances = Importances()
        self._told: set[str] = set()
        self._rounds_before = 0
        self._open_round: tuple[int, Any] | None = None
        current_hook.made(self)

    @classmethod
    def hook_from_config(cls, json_file_path: str | None = None) -> Self:
        """The same as `create_from_json_file`. Data and hyperparameters are set afterwards: `hook.validation_data =
        dvalid`."""
        return cls.create_from_json_file(json_file_path)

    # What the user sets and calls.

    @property
    def hyperparameters(self) -> dict[str, Any] | None:
        """What is saved as `hyperparameters/<name>`; None: as the booster has them. Set it to a dictionary or pairs."""
        return self._hyperparameters

    @hyperparameters.setter
    def hyperparameters(self, value: Mapping[str, Any] | Iterable[tuple[str, Any]] | None) -> None:
        self._hyperparameters = check_parameters(value)

    @property
    def train_data(self) -> xgb.DMatrix | None:
        """What SHAP values are computed on. Set it to data; a DMatrix comes back."""
        return self._train.matrix if self._train else None

    @train_data.setter
    def train_data(self, value: Any) -> None:
        self._train = self._data_set("train_data", value)

    @property
    def validation_data(self) -> xgb.DMatrix | None:
        """What predictions and labels are of. Set it to data; a DMatrix comes back."""
        return self._validation.matrix if self._validation else None

    @validation_data.setter
    def validation_data(self, value: Any) -> None:
        self._validation = self._data_set("validation_data", value)

    @guarded
    def save_tensor(
        self, tensor_name: str, tensor_value: Any, collections_to_write: Iterable[str] | str = "default"
    ) -> None:
        """Save an array, or what numpy makes one of, whatever the save configuration says: at the open step, or, when
        none is open, at the one that begins next in this mode; in the form that the collections ask for."""
        try:
            self.recorder.save_tensor(tensor_name, array_of(tensor_value), collections_to_write)
        except UnsupportedValue as exc:
            self.recorder.refuse(tensor_name, exc)

    # What XGBoost calls. `model` is a Booster, or in `xgboost.cv` the pack of the folds' boosters.

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
            # A callback before this one ended training: the last round was kept from us.
            (epoch, evals_log), self._open_round = self._open_round, None
            # It may also have cut the model back to its best round.
            is_whole = model.num_boosted_rounds() == self._rounds_before + epoch + 1
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
        self._warn_if_copy()
        if self.recorder.active:
            self._rounds_before = model.num_boosted_rounds()
            self.recorder.start_at(self._rounds_before)

    @guarded
    def _end_round(self, model: Any, evals_log: Any) -> None:
        """A step: all of it is known when the round is over. Without a model, only the metrics are."""
        if not self.recorder.active:
            return
        metrics = latest_metrics(evals_log)
        self._know(metrics)
        self.recorder.begin_step()
        if self.recorder.saving:
            self._capture_metrics(metrics)
            if model is not None:
                self._capture(model)
        self.recorder.end_step()

    def _know(self, metrics: Mapping[str, float]) -> None:
        if self._metrics.issuperset(metrics):
            return
        self._metrics.update(metrics)
        collections = self.recorder.collections
        collections.require(CollectionKeys.METRICS).add_tensor_names(metrics)
        collections.require(CollectionKeys.LOSSES).add_tensor_names(filter(is_loss, metrics))

    # Capturing: nothing is computed before it is known to be due.

    def _capture_metrics(self, metrics: Mapping[str, float]) -> None:
        self._record_numbers(tuple(metrics), list(metrics.values()))
        if not metrics and self._is_due_now(CollectionKeys.METRICS):
            self._say("no metrics are saved: there is no evaluation set; give training `evals`, or fit an `eval_set`")

    def _capture(self, model: Any) -> None:
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
            self._say("predictions, labels, SHAP values and trees are of one model; a cross-validation has several")

    def _capture_hyperparameters(self, booster: xgb.Booster, names: Names) -> None:
        given = self._hyperparameters
        if given is None:
            # They may change: a callback can set the learning rate.
            given = booster_parameters(booster) if self._is_due(names.hyperparameters) else {}
        for name, value in given.items():
            self._record(f"hyperparameters/{name}", as_array(value))

    def _capture_importances(self, boosters: Sequence[xgb.Booster], names: Names) -> None:
        kinds = [kind for kind, of_kind in names.importances.items() if self._is_due(of_kind)]
        if names.is_linear and kinds != ["weight"]:
            if kinds:
                self._say("a linear model has the feature importance `weight` and no other")
            kinds = ["weight"] if "weight" in kinds else []
        if not kinds:
            return
        of_all = self._importances.of(boosters[0], kinds) if len(boosters) == 1 else mean_importances(boosters, kinds)
        for of_kind, scores in of_all:
            self._record_numbers(of_kind, scores)

    def _capture_predictions(self, booster: xgb.Booster) -> None:
        due = [name for name in ("predictions", "labels") if self._is_due([name])]
        data = self._validation
        if data is None:
            if due:
                self._say(f"no {' and '.join(due)} are saved: the hook has no validation_data")
            return
        for name in due:
            with self._refusing(name):
                self._record(name, data.labels if name == "labels" else data.predict(booster))

    def _capture_shap(self, booster: xgb.Booster, names: Names) -> None:
        data = self._train
        if not self._is_due(names.shap):
            return
        if data is None:
            self._say("no SHAP values are saved: the hook has no train_data")
            return
        with self._refusing("full_shap" if self._is_due(names.full_shap) else "average_shap"):
            values = data.predict(booster, contributions=True)
            self._record("full_shap", values)
            for i, name in enumerate(names.full_shap_columns):
                self._record(name, values[..., i])
            if self._is_due(names.average_shap):
                # The last one is the bias.
                means = np.abs(values[..., :-1]).mean(axis=0, dtype=np.float64)
                self._record_numbers(names.average_shap, means.T.tolist())

    def _capture_trees(self, booster: xgb.Booster, names: Names) -> None:
        if self._is_due(names.trees):
            with self._refusing("trees"):
                for column, values in newest_trees(booster, names.features).items():
                    self._record(f"trees/{column}", values)

    # Recording.

    def _record_numbers(self, names: tuple[str, ...], numbers: Sequence[Any]) -> None:
        """A number for each name; of a model of several groups, a list of them."""
        if numbers and isinstance(numbers[0], list):
            for name, number in zip(names, numbers, strict=True):
                self._record(name, np.array(number, np.float64))
        else:
            self.recorder.record_numbers(names, numbers)

    def _record(self, name: str, value: Array) -> None:
        plan = self.recorder.plan(name)
        if plan is not None:
            self.recorder.record(plan, value)

    def _is_due(self, names: Iterable[str]) -> bool:
        plan = self.recorder.plan
        return any(plan(name) is not None for name in names)

    def _is_due_now(self, collection: str) -> bool:
        config, step = self.recorder.collections.require(collection).save_config, self.recorder.step
        return config is not None and step is not None and config.should_save_step(step.mode, step.mode_step)

    @contextmanager
    def _refusing(self, name: str) -> Iterator[None]:
        """What cannot be had is left out; the rest of the step goes on."""
        try:
            yield
        except UnsupportedValue as exc:
            self.recorder.refuse(name, exc)

    def _say(self, sentence: str) -> None:
        """Once, however many steps it is true of."""
        if sentence not in self._told:
            self._told.add(sentence)
            logger.warning("%s", sentence)

    def _data_set(self, name: str, value: Any) -> DataSet | None:
        # In a distributed job a DMatrix is made by all workers together, also by those that save nothing.
        if value is None or not (self.recorder.active or xgb.collective.is_distributed()):
            return None
        return DataSet(name, value)


def get_hook(
    hook_type: str | None = None, json_config_path: str | None = None, create_if_not_exists: bool = False
) -> Any:
    """The current hook, or None; made from the JSON configuration if asked to be."""
    return current_hook.get_hook(hook_type, json_config_path, create_if_not_exists, create=Hook.create_from_json_file)


def _rank() -> Rank:
    if xgb.collective.is_distributed():
        return Rank(xgb.collective.get_rank(), xgb.collective.get_world_size())
    return rank_of_process()
