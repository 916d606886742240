"""The trees of a booster as columns."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tensortrial.dtypes import Array
from tensortrial.errors import UnsupportedValue

# The value for leaves in columns that only splits have.
_NONE = "nan"


COLUMNS: dict[str, Any] = {
    "Tree": np.int64,
    "Node": np.int64,
    "ID": np.str_,
    "Feature": np.str_,
    "Split": np.float64,
    "Yes": np.str_,
    "No": np.str_,
    "Missing": np.str_,
    "Gain": np.float64,
    "Cover": np.float64,
    "Category": np.str_,
}
"""The columns of XGBoost's `trees_to_dataframe`, with their dtypes. Trees and nodes are counted from 0.

`Feature` is `Leaf` for a leaf. `Split` is the threshold, below which values go to `Yes`, and NaN for a leaf and for a
split by categories. `Gain` is that of the split, or the value of a leaf. `Cover` is the sum of the second derivatives
of the rows that reach the node. `Category` has the categories that go to `No`, as comma-separated numbers.
"""


def newest_trees(booster: Any, features: Sequence[str]) -> dict[str, Array]:
    """Return the trees of the last boosting round by column, with one row for each node.

    If the model can be sliced, only that round is read.

    Returns:
        Arrays of shape (nodes,): int64, float64, and fixed-width strings.

    Raises:
        UnsupportedValue: The model has no trees, or trees with several values in a leaf.
    """
    trees, first = _newest(booster)
    if any(tree["tree_param"]["size_leaf_vector"] != "1" for tree in trees):
        raise UnsupportedValue("trees with several values in a leaf (multi_output_tree) cannot be saved as columns")
    rows = [row for i, tree in enumerate(trees) for row in _nodes(tree, first + i, features)]
    columns = enumerate(COLUMNS.items())
    return {name: np.array([row[place] for row in rows], dtype) for place, (name, dtype) in columns}


def _newest(booster: Any) -> tuple[list[Any], int]:
    """Return the trees of the last boosting round as XGBoost's JSON, and the number of the first tree."""
    last = booster.num_boosted_rounds() - 1
    try:
        trees = _part_with_trees(_gradient_booster(booster[last : last + 1]))["model"]["trees"]
    except ValueError as exc:  # XGBoostError is a ValueError
        return _newest_of_whole(booster, exc)
    return trees, _count_trees(booster) - len(trees)


def _newest_of_whole(booster: Any, refused: ValueError) -> tuple[list[Any], int]:
    """Return the result of `_newest` for a model that cannot be sliced.

    A model with process_type="update" cannot be sliced before its last round.
    """
    found = _part_with_trees(_gradient_booster(booster))
    if "iteration_indptr" not in found["model"]:
        raise UnsupportedValue("the model has no trees: it is linear") from refused
    first = found["model"]["iteration_indptr"][-2]
    return found["model"]["trees"][first:], first


def _gradient_booster(booster: Any) -> Mapping[str, Any]:
    return json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"]


def _count_trees(booster: Any) -> int:
    model = json.loads(booster.save_config())["learner"]["gradient_booster"]
    return int(_part_with_trees(model)["gbtree_model_param"]["num_trees"])


def _part_with_trees(model: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the section with the trees: DART nests it."""
    return model.get("gbtree", model)


def _nodes(tree: Mapping[str, Any], number: int, features: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield a row of the columns for each reachable node. XGBoost's lists also contain pruned nodes."""
    left, right = tree["left_children"], tree["right_children"]
    categories = _categories(tree)
    reached = [0]
    for node in reached:
        if left[node] >= 0:
            reached += [left[node], right[node]]
    for node in sorted(reached):
        yes, no, value = left[node], right[node], tree["split_conditions"][node]
        if yes < 0:
            feature, split, gain, children = "Leaf", math.nan, value, [_NONE] * 3
        else:
            feature, split = features[tree["split_indices"][node]], math.nan if node in categories else value
            missing = yes if tree["default_left"][node] else no
            gain, children = tree["loss_changes"][node], [f"{number}-{child}" for child in (yes, no, missing)]
        cover, category = tree["sum_hessian"][node], categories.get(node, _NONE)
        yield number, node, f"{number}-{node}", feature, split, *children, gain, cover, category


def _categories(tree: Mapping[str, Any]) -> dict[int, str]:
    """Return the categories of the nodes that split by categories, by node."""
    slices = zip(tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"], strict=True)
    return {node: ",".join(map(str, tree["categories"][start : start + size])) for node, start, size in slices}
