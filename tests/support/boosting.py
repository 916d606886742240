"""Real boosting for the tests of hooks: scikit-learn's breast-cancer data."""

from __future__ import annotations

from functools import cache
from typing import Any

import xgboost as xgb
from sklearn.datasets import load_breast_cancer

PARAMETERS = {"objective": "binary:logistic", "max_depth": 3, "eta": 0.5, "nthread": 1, "seed": 7}


@cache
def frame() -> tuple[Any, Any]:
    """All rows with the names of their columns, and the labels."""
    return load_breast_cancer(return_X_y=True, as_frame=True)


def halves(x: Any, y: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Every third row is held out."""
    held_out = [i % 3 == 0 for i in range(len(x))]
    trained = [not each for each in held_out]
    return (x[trained], y[trained]), (x[held_out], y[held_out])


def cancer() -> tuple[xgb.DMatrix, xgb.DMatrix]:
    """For training, and for validation."""
    (x, y), (held_x, held_y) = halves(*frame())
    return xgb.DMatrix(x, y, nthread=1), xgb.DMatrix(held_x, held_y, nthread=1)
