"""The hook for scikit-learn: the program passes an estimator to it.

import tensortrial.hooks.sklearn as tt

hook = tt.Hook("runs/sgd")
for epoch in range(100):
    model.partial_fit(x, y, classes=classes)
    hook.save_model(model, step=epoch)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tensortrial.config.collection import CollectionKeys
from tensortrial.dtypes import Array
from tensortrial.errors import ConfigurationError, UnsupportedValue, importing, message_of, shown
from tensortrial.mode import ModeKeys

from ..core import current_hook
from ..core.called_hook import CalledHook
from ..core.configuration.options import Framework, HookOptions, accepts_fields_of
from ..core.process.rank import rank_of_process
from ..core.recorder import Recorder, guarded
from ..library.versions import check_version

with importing("scikit-learn", "sklearn", "the scikit-learn hook"):
    import sklearn
    from sklearn.base import BaseEstimator
    from sklearn.pipeline import Pipeline

from .attributes import attributes_of, collection_of, is_fitted, staged_losses, stages_of

OLDEST_SKLEARN, NEWEST_TESTED_SKLEARN = "1.3", "1.9"
SAVE_INTERVAL = 1

_FRAMEWORK = Framework(
    "sklearn",
    {"scikit-learn": sklearn.__version__},
    builtin=[
        CollectionKeys.WEIGHTS,
        CollectionKeys.BIASES,
        CollectionKeys.LOSSES,
        CollectionKeys.METRICS,
        CollectionKeys.SM_METRICS,
        CollectionKeys.FEATURE_IMPORTANCE,
    ],
    always_saved=[CollectionKeys.LOSSES, CollectionKeys.METRICS],
    save_interval=SAVE_INTERVAL,
    is_ordered=False,
)

_DEFAULT = [CollectionKeys.WEIGHTS, CollectionKeys.BIASES, CollectionKeys.FEATURE_IMPORTANCE]


class Hook(CalledHook):
    """A hook that saves the attributes and losses of scikit-learn's estimators.

    `save_model` saves the fitted attributes of an estimator after each `partial_fit`; `save_stages` saves the losses of
    an estimator whose `fit` has stages or iterations.

    `help(Hook.__init__)` lists the arguments, which every hook has. By default each step is saved. Without
    `include_collections`, `include_regex` and `save_all`, it saves weights, biases, losses and the feature importance.
    After construction no error of the hook reaches training: the hook logs the first one and turns itself off
    (TENSORTRIAL_STRICT=1 raises it instead).

    Raises:
        ConfigurationError: An argument has an invalid value.
        RunExists: out_dir holds a run already.
        UnsupportedFramework: scikit-learn is too old.
    """

    @accepts_fields_of(HookOptions)
    def __init__(self, options: HookOptions) -> None:
        check_version("scikit-learn", sklearn.__version__, OLDEST_SKLEARN, NEWEST_TESTED_SKLEARN)
        self.recorder = Recorder(options, _FRAMEWORK, rank_of_process)
        is_chosen = options.include_collections is not None or options.include_regex or options.save_all
        self._includes = not is_chosen
        current_hook.made(self)

    @guarded
    def save_model(
        self, model: Any, step: int | None = None, *, name: str | None = None, mode: ModeKeys | str | None = None
    ) -> None:
        """Save the fitted attributes of an estimator that are due at the step: `coef_`, `intercept_`, `loss_`, ….

        Args:
            model: A fitted estimator, or a pipeline of them: `scaler/mean_`.
            step: The number of a step in its mode, also of a past one. Default: the open step, or the next one if the
                open step has this model.
            name: The prefix of the names, to save several models: `name/coef_`.
            mode: The mode that the step is counted in. Default: the current one.
        """
        self.recorder.warn_if_copy()
        self._check(model, "save_model")
        marker = f"model {name or ''}"
        if step is None:
            self._begin_call((marker,))
        if self._includes and self.recorder.active:
            self.recorder.collections.include(_DEFAULT)
        with self.recorder.saving_at(step, mode) as at:
            if at is not None and self.recorder.saving:
                found = {f"{name}/{each}" if name else each: value for each, value in _attributes_of(model)}
                for each in found:
                    collection = collection_of(each)
                    if collection is not None:
                        self.recorder.collections.require(collection).add_tensor_names([each])
                self.recorder.replan(at, step)
                for each, value in found.items():
                    plan = self.recorder.planner.plan(each)
                    if plan is not None:
                        self.recorder.record(plan, value, step=at)
        if step is None:
            self._end_call((marker,))

    @guarded
    def save_stages(
        self,
        model: Any,
        evaluations: Mapping[str, tuple[Any, Any]] | None = None,
        *,
        loss: Callable[[Any, Any], float] | None = None,
        first_step: int = 0,
        mode: ModeKeys | str | None = None,
    ) -> None:
        """Save the numbers of the stages or iterations of `fit`, each at its own step.

        They are `train_score_`, `validation_score_` and `oob_improvement_` of boosting, `loss_curve_` and
        `validation_scores_` of MLPs, and others. For each evaluation set, also save the loss after each stage of
        boosting, as `<name>-<loss>`.

        Args:
            model: A fitted estimator.
            evaluations: Pairs (data, labels) by the name of the evaluation set.
            loss: A function of labels and predictions. Default: `log_loss` of a classifier's probabilities, else
                `mean_squared_error`.
            first_step: The number of the first stage in its mode, such as that of a warm start.
            mode: The mode that the steps are counted in. Default: the current one.
        """
        self.recorder.warn_if_copy()
        self._check(model, "save_stages")
        collections = self.recorder.collections
        for name, values, is_loss in stages_of(model):
            collections.require(CollectionKeys.LOSSES if is_loss else CollectionKeys.METRICS).add_tensor_names([name])
            for stage, value in enumerate(values.tolist()):
                self.recorder.save_scalars([(name, value)], step=first_step + stage, mode=mode)
        if not isinstance(evaluations, Mapping | None):
            raise ConfigurationError(
                f"evaluations must be a mapping {{name: (data, labels)}}, got {shown(evaluations)}"
            )
        for data, pair in (evaluations or {}).items():
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise ConfigurationError(f"evaluations must have pairs (data, labels), got {shown(pair)} for {data!r}")
            found = staged_losses(model, *pair, loss)
            if found is None:
                raise ConfigurationError(f"a {type(model).__name__} has no staged_predict; pass no evaluations")
            name = f"{data}-{found[0]}"
            collections.require(CollectionKeys.LOSSES).add_tensor_names([name])
            try:
                numbers = list(found[1])
            except Exception as exc:  # noqa: BLE001 - the user's data or loss may not fit the model
                self.recorder.refuse(name, UnsupportedValue(f"it cannot be computed: {message_of(exc)}"))
                continue
            for stage, value in enumerate(numbers):
                self.recorder.save_scalars([(name, value)], step=first_step + stage, mode=mode)

    def _check(self, model: Any, method: str) -> None:
        if not isinstance(model, BaseEstimator):
            raise ConfigurationError(f"{method} takes an estimator of scikit-learn, got {shown(model)}")
        if not (is_fitted(model) or isinstance(model, Pipeline)):
            raise ConfigurationError(f"{type(model).__name__} is not fitted; call fit or partial_fit before {method}")


def _attributes_of(model: BaseEstimator) -> list[tuple[str, Array]]:
    try:
        return list(attributes_of(model))
    except Exception as exc:  # a user's estimator may have attributes that raise anything
        raise ConfigurationError(f"a {type(model).__name__} cannot be read: {message_of(exc)}") from exc


get_hook = current_hook.getter(Hook.create_from_json_file)
