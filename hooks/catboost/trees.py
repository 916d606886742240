"""The splits of a CatBoost model as columns."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tensortrial.dtypes import Array

SPLIT_COLUMNS: dict[str, Any] = {
    "split_tree": np.int64,
    "split_type": np.str_,
    "split_feature": np.str_,
    "split_border": np.float64,
}
"""The columns with their dtypes."""


def splits_of(model: Any) -> dict[str, Array]:
    """Return the splits of a model's symmetric trees by column, with one row for each level of each tree.

    A split of `split_type` "FloatFeature" compares the feature with the border. One by a combination of categories
    ("OnlineCtr") has no feature, and compares its statistic with the border.

    Args:
        model: A trained model.

    Returns:
        Arrays of shape (splits,): int64, fixed-width strings and float64; nothing for trees that are not symmetric.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.json")
        model.save_model(str(path), format="json")
        document = json.loads(path.read_bytes())
    names = {
        kind: {each["feature_index"]: each.get("feature_id") or str(each["flat_feature_index"]) for each in found}
        for kind in ("float_features", "categorical_features")
        if (found := document["features_info"].get(kind))
    }
    rows = [
        (number, split["split_type"], _feature(split, names), split.get("border", math.nan))
        for number, tree in enumerate(document.get("oblivious_trees", ()))
        for split in tree.get("splits") or ()
    ]
    columns = zip(*rows, strict=True)
    return {name: np.array(values, kind) for (name, kind), values in zip(SPLIT_COLUMNS.items(), columns, strict=False)}


def _feature(split: Mapping[str, Any], names: Mapping[str, Mapping[int, str]]) -> str:
    for key, kind in (("float_feature_index", "float_features"), ("cat_feature_index", "categorical_features")):
        if key in split:
            return names.get(kind, {}).get(split[key], str(split[key]))
    return "nan"
