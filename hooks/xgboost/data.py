"""The data sets that a hook is given: what predictions and SHAP values are computed on."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import xgboost as xgb

from tensortrial.dtypes import Array
from tensortrial.errors import ConfigurationError, UnsupportedValue

_ACCEPTED = "a DMatrix, an array, a DataFrame or a sparse matrix, or a pair (data, labels) of these"


class DataSet:
    """Data in XGBoost's form. A DMatrix is used as it is; of anything else one is made, and so a copy."""

    def __init__(self, name: str, value: Any) -> None:
        """`name` is the argument's, for messages. Raises ConfigurationError."""
        self.name = name
        self._is_ours = not isinstance(value, xgb.DMatrix)
        self.matrix = _matrix(name, value) if self._is_ours else value

    @property
    def labels(self) -> Array:
        """The labels, shape (rows,) or (rows, targets), float32. Raises UnsupportedValue if there are none."""
        labels: Array = self.matrix.get_label()
        if not labels.size:
            raise UnsupportedValue(f"{self.name} has no labels; give a DMatrix with labels, or a pair (data, labels)")
        return labels

    def predict(self, booster: xgb.Booster, contributions: bool = False) -> Array:
        """What the whole model predicts: shape (rows,) or (rows, groups), float32; or its SHAP values, with an axis
        of features and the bias at the end.

        Raises UnsupportedValue if the data do not fit the model, or the model cannot say.
        """
        self._check(booster)
        try:
            return np.asarray(booster.predict(self.matrix, pred_contribs=contributions))
        except ValueError as exc:  # XGBoost's own error is one
            reason = str(exc).partition("\nStack trace")[0].rpartition("Check failed: ")[2]
            raise UnsupportedValue(f"XGBoost cannot predict {self.name}: {reason.strip()}") from exc

    def _check(self, booster: xgb.Booster) -> None:
        if not self.matrix.num_row():
            raise UnsupportedValue(f"{self.name} has no rows")
        columns, wanted = self.matrix.num_col(), booster.num_features()
        if columns != wanted:
            raise UnsupportedValue(f"{self.name} has {columns} columns, and the model {wanted} features")
        if self._is_ours and self.matrix.feature_names is None:
            # Plain arrays do not know what their columns are called; the model that was trained on a DataFrame does.
            self.matrix.feature_names = booster.feature_names
        names, known = self.matrix.feature_names, booster.feature_names
        if names is not None and known is not None and list(names) != list(known):
            place = next(i for i, (name, other) in enumerate(zip(names, known, strict=True)) if name != other)
            raise UnsupportedValue(
                f"column {place} of {self.name} is {names[place]!r}, and feature {place} of the model {known[place]!r}"
            )


def _matrix(name: str, value: Any) -> xgb.DMatrix:
    data, labels = value if isinstance(value, tuple) and len(value) == 2 else (value, None)
    if isinstance(data, str):
        raise ConfigurationError(f"{name} must be {_ACCEPTED}, not the name of a file: load {data!r} first")
    if isinstance(data, xgb.DMatrix):
        raise ConfigurationError(f"{name}: a DMatrix keeps its labels itself; give it alone")
    try:
        with warnings.catch_warnings():
            # What XGBoost does not know it warns of before it tries it, and fails.
            warnings.filterwarnings("ignore", "Unknown data type")
            return xgb.DMatrix(data, labels, enable_categorical=True)
    except (TypeError, ValueError, AttributeError) as exc:
        reason = str(exc).partition("\nStack trace")[0]
        raise ConfigurationError(f"{name} must be {_ACCEPTED}; of {type(data).__name__}: {reason}") from exc
