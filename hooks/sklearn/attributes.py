"""The tensors of a fitted estimator of scikit-learn: its attributes, and the losses of its stages."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from tensortrial.config.collection import CollectionKeys
from tensortrial.dtypes import Array

# The attributes that scikit-learn's estimators have for each iteration or stage of `fit`, and whether they are losses.
# The others may be scores, for which higher is better.
STAGES = {
    "train_score_": True,
    "oob_scores_": True,
    "oob_improvement_": False,
    "validation_score_": False,
    "loss_curve_": True,
    "validation_scores_": False,
    "estimator_errors_": True,
    "estimator_weights_": False,
    "scores_": False,
}

_COLLECTIONS = {
    CollectionKeys.WEIGHTS: re.compile(r"^(coefs?_|components_|cluster_centers_|means_|theta_)(/|$)"),
    CollectionKeys.BIASES: re.compile(r"^intercepts?_(/|$)"),
    CollectionKeys.LOSSES: re.compile(r"^(loss_|inertia_)$"),
    CollectionKeys.FEATURE_IMPORTANCE: re.compile(r"^feature_importances_$"),
}


def attributes_of(model: Any) -> Iterator[tuple[str, Array]]:
    """Yield the names and values of an estimator's fitted attributes that are numbers or numeric arrays.

    Args:
        model: An estimator, or a pipeline, whose steps' names are prefixes: `scaler/mean_`.
    """
    if isinstance(model, Pipeline):
        for name, step in model.steps:
            for attribute, value in attributes_of(step):
                yield f"{name}/{attribute}", value
        return
    own = getattr(model, "__dict__", {})
    for name, value in own.items():
        # Attributes of stages belong to several steps: see `stages_of`.
        if name.endswith("_") and not name.startswith("_") and name not in STAGES:
            yield from _arrays(name, value)
    # It may be a property, which is computed when it is read. It raises AttributeError for estimators that have none.
    if isinstance(inspect.getattr_static(model, "feature_importances_", None), property) and is_fitted(model):
        yield from _arrays("feature_importances_", getattr(model, "feature_importances_", None))


def is_fitted(model: Any) -> bool:
    """Return whether an estimator is fitted."""
    return any(name.endswith("_") and not name.startswith("_") for name in vars(model))


def collection_of(name: str) -> str | None:
    """Return the collection of an attribute, None if it has none."""
    attribute = re.sub(r"^(?:.*/)?(?=[a-z]\w*_(?:/\d+)*$)", "", name)
    return next((key for key, pattern in _COLLECTIONS.items() if pattern.search(attribute)), None)


def stages_of(model: Any) -> Iterator[tuple[str, Array, bool]]:
    """Yield the attributes with a number for each stage: the name, the numbers, and True for losses."""
    own = vars(model)
    # AdaBoost has numbers for all stages that it was asked for, also if it stopped early.
    end = len(own["estimators_"]) if "estimators_" in own else None
    for name, is_loss in STAGES.items():
        array = np.asarray(own.get(name))
        # HistGradientBoosting, which has no `estimators_`, has scores there, and one from before the first stage.
        is_score = name in ("train_score_", "validation_score_") and end is None
        if array.ndim == 1 and array.dtype.kind in "fiu" and array[is_score:end].size:
            yield name, array[is_score:end], is_loss and not is_score


def staged_losses(
    model: Any, x: Any, y: Any, loss: Callable[[Any, Any], float] | None
) -> tuple[str, Iterator[float]] | None:
    """Return the name of a loss, and its values after each stage of a boosting model; None if it has no stages.

    `loss` is a function of labels and predictions; by default log_loss of a classifier's probabilities, else
    mean_squared_error.
    """
    from sklearn.base import is_classifier
    from sklearn.metrics import log_loss, mean_squared_error

    if loss is None and is_classifier(model) and hasattr(model, "staged_predict_proba"):
        classes = model.classes_
        return "log_loss", (float(log_loss(y, each, labels=classes)) for each in model.staged_predict_proba(x))
    if not hasattr(model, "staged_predict"):
        return None
    measure: Callable[[Any, Any], float] = loss or mean_squared_error
    name = getattr(measure, "__name__", "loss").strip("<>")
    return name, (float(measure(y, each)) for each in model.staged_predict(x))


def _arrays(name: str, value: Any) -> Iterator[tuple[str, Array]]:
    if isinstance(value, Mapping):
        return
    if isinstance(value, (list, tuple)) and any(isinstance(each, np.ndarray) for each in value):
        for number, each in enumerate(value):
            yield from _arrays(f"{name}/{number}", each)
        return
    if hasattr(value, "toarray"):  # a sparse matrix, such as that of `sparsify`
        value = value.toarray()
    if isinstance(value, (bool, int, float, np.generic, np.ndarray)) or _is_numbers(value):
        array = np.asarray(value)
        if array.dtype.kind in "biufcU":
            yield name, array


def _is_numbers(value: Any) -> bool:
    return isinstance(value, Sequence) and bool(value) and all(isinstance(each, (int, float)) for each in value)
