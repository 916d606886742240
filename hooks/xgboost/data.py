"""The data sets whose predictions, labels and SHAP values a hook saves."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import xgboost as xgb

from tensortrial.dtypes import Array
from tensortrial.errors import ConfigurationError, UnsupportedValue

_ACCEPTED = "a DMatrix, an array, a DataFrame or a sparse matrix, or a pair (data, labels) of these"


class DataSet:
    """Data as a DMatrix. Other data than a DMatrix are copied into one."""

    def __init__(self, name: str, value: Any) -> None:
        """Create a data set.

        Args:
            name: The name of the argument, for messages.
            value: A DMatrix, other data, or a pair (data, labels).

        Raises:
            ConfigurationError: XGBoost cannot create a DMatrix from `value`.
        """
        self.name = name
        self._is_ours = not isinstance(value, xgb.DMatrix)
        self.matrix = _matrix(name, value) if self._is_ours else value

    @property
    def labels(self) -> Array:
        """The labels, shape (rows,) or (rows, targets), float32. Raises UnsupportedValue if there are none."""
        labels: Array = self.matrix.get_label()
        if not labels.size:
            raise UnsupportedValue(f"{self.name} has no labels; pass a DMatrix with labels, or a pair (data, labels)")
        return labels

    def predict(self, booster: xgb.Booster, contributions: bool = False) -> Array:
        """Return the predictions of the whole model, or with `contributions` its SHAP values.

        Returns:
            float32 of shape (rows,) or (rows, groups); SHAP values have another axis at the end, of the features and
            the bias.

        Raises:
            UnsupportedValue: The data do not fit the model, or the model has no such values.
        """
        self._check(booster)
        try:
            return np.asarray(booster.predict(self.matrix, pred_contribs=contributions))
        except ValueError as exc:  # XGBoostError is a ValueError
            reason = str(exc).partition("\nStack trace")[0].rpartition("Check failed: ")[2]
            raise UnsupportedValue(f"XGBoost cannot predict {self.name}: {reason.strip()}") from exc

    def _check(self, booster: xgb.Booster) -> None:
        if not self.matrix.num_row():
            raise UnsupportedValue(f"{self.name} has no rows; pass data with at least one")
        columns, wanted = self.matrix.num_col(), booster.num_features()
        if columns != wanted:
            raise UnsupportedValue(
                f"{self.name} has {columns} columns, but the model has {wanted} features; pass the columns of training"
            )
        if self._is_ours and self.matrix.feature_names is None:
            # A plain array has no names of columns, but a model that was trained on a DataFrame has names of features.
            self.matrix.feature_names = booster.feature_names
        names, known = self.matrix.feature_names, booster.feature_names
        if names is not None and known is not None and list(names) != list(known):
            column = next(i for i, (name, other) in enumerate(zip(names, known, strict=True)) if name != other)
            raise UnsupportedValue(
                f"column {column} of {self.name} is {names[column]!r}, but feature {column} of the model is "
                f"{known[column]!r}; pass the columns in the order of training"
            )


def _matrix(name: str, value: Any) -> xgb.DMatrix:
    data, labels = value if isinstance(value, tuple) and len(value) == 2 else (value, None)
    if isinstance(data, str):
        raise ConfigurationError(f"{name} must be {_ACCEPTED}, got the text {data!r}; to use a file, load it first")
    if isinstance(data, xgb.DMatrix):
        raise ConfigurationError(f"{name}: a DMatrix has its own labels; pass it alone, not in a pair")
    try:
        with warnings.catch_warnings():
            # XGBoost warns of an unknown type before it tries to read the data and fails.
            warnings.filterwarnings("ignore", "Unknown data type")
            return xgb.DMatrix(data, labels, enable_categorical=True)
    except (TypeError, ValueError, AttributeError) as exc:
        reason = str(exc).partition("\nStack trace")[0]
        raise ConfigurationError(f"{name} must be {_ACCEPTED}, got {type(data).__name__}: {reason}") from exc
