"""The names of a booster's tensors."""

from __future__ import annotations

from typing import Any

from .importance import IMPORTANCE_TYPES, importance_names
from .parameters import booster_parameters
from .trees import COLUMNS


class Names:
    """The names of all tensors of one booster, which are computed once for all steps."""

    def __init__(self, booster: Any) -> None:
        parameters = booster_parameters(booster)
        self.is_linear = parameters["booster"] == "gblinear"
        self.hyperparameters = tuple(f"hyperparameters/{name}" for name in parameters)
        features = booster.feature_names or [f"f{i}" for i in range(booster.num_features())]
        self.features: tuple[str, ...] = tuple(features)
        self.importances = {name: importance_names(name, features) for name in IMPORTANCE_TYPES}
        self.average_shap = tuple(f"average_shap/{feature}" for feature in features)
        self.full_shap_columns = tuple(f"full_shap/{feature}" for feature in features)
        self.full_shap = ["full_shap", *self.full_shap_columns]
        self.shap = [*self.average_shap, *self.full_shap]
        self.trees = tuple(f"trees/{column}" for column in COLUMNS)
        self.of_one_model = ["predictions", "labels", *self.shap, *self.trees]
