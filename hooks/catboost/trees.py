"""The trees of a CatBoost model as columns."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
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
CHILD_COLUMNS: dict[str, Any] = {"split_left": np.int64, "split_right": np.int64}
"""The additional columns of trees that are not symmetric."""


def splits_of(model: Any) -> dict[str, Array]:
    """Return the splits of a model's trees by column.

    A symmetric tree has one row for each level. A tree of another `grow_policy` has one for each node that splits,
    the root first, and columns with its children: a number from 0 is the row of a split, and -1 - i stands for leaf i
    of all trees. These leaves are returned too, because CatBoost does not document their order.

    A split of `split_type` "FloatFeature" compares the feature with the border: greater values go right. A split by a
    combination of categories ("OnlineCtr") has no feature, and compares a statistic with the border.

    Args:
        model: A trained model.

    Returns:
        Arrays of shape (splits,): int64, fixed-width strings and float64; none for a model without a split. For trees
        that are not symmetric also `leaf_values`, float64 of shape (leaves * outputs,), and `leaf_weights`, float64 of
        shape (leaves,).
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
    if "oblivious_trees" in document:
        trees = document["oblivious_trees"]
        found = [(number, split, ()) for number, tree in enumerate(trees) for split in tree.get("splits") or ()]
        leaves = []
        kinds = SPLIT_COLUMNS
    else:
        levels = [_by_level(tree) for tree in document.get("trees", ())]
        found = list(_splits(levels))
        leaves = [node for nodes in levels for node in nodes if "split" not in node]
        kinds = SPLIT_COLUMNS | CHILD_COLUMNS
    rows = [
        (number, split["split_type"], _feature(split, names), split.get("border", math.nan), *children)
        for number, split, children in found
    ]
    columns = zip(*rows, strict=True)
    arrays = {name: np.array(values, kind) for (name, kind), values in zip(kinds.items(), columns, strict=False)}
    if leaves:
        arrays["leaf_values"] = np.array([leaf["value"] for leaf in leaves], np.float64).ravel()
        arrays["leaf_weights"] = np.array([leaf["weight"] for leaf in leaves], np.float64)
    return arrays


def _by_level(tree: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the nodes of a tree, level by level."""
    nodes = [tree]
    for node in nodes:  # the list grows during the loop
        if "split" in node:
            nodes += node["left"], node["right"]
    return nodes


def _splits(trees: Sequence[Sequence[Mapping[str, Any]]]) -> Iterator[tuple[int, Mapping[str, Any], tuple[int, int]]]:
    """Yield each split with the number of its tree and those of its children."""
    row, leaf = 0, 0
    for number, nodes in enumerate(trees):
        numbers = list[int]()
        for node in nodes:
            if "split" in node:
                numbers.append(row)
                row += 1
            else:
                numbers.append(-1 - leaf)
                leaf += 1
        # Children come in the order of their parents.
        children = iter(numbers[1:])
        for node in nodes:
            if "split" in node:
                yield number, node["split"], (next(children), next(children))


def _feature(split: Mapping[str, Any], names: Mapping[str, Mapping[int, str]]) -> str:
    for key, kind in (("float_feature_index", "float_features"), ("cat_feature_index", "categorical_features")):
        if key in split:
            return names.get(kind, {}).get(split[key], str(split[key]))
    return "nan"
