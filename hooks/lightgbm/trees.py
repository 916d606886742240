"""The trees of a LightGBM model as columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tensortrial.dtypes import Array

_NONE = "nan"


def newest_trees(booster: Any, iteration: int, features: Sequence[str]) -> dict[str, Array]:
    """Return the trees of an iteration by column, with one row for each node, in the order of `trees_to_dataframe`.

    Args:
        booster: The model.
        iteration: The iteration, from 0.
        features: The names of the features.

    Returns:
        Arrays of shape (nodes,): int64, float64, and fixed-width strings.
    """
    dump = booster.dump_model(num_iteration=1, start_iteration=iteration)
    rows = [row for tree in dump["tree_info"] for row in _nodes(tree["tree_index"], tree["tree_structure"], features)]
    columns = {name: [row[name] for row in rows] for name in COLUMNS}
    return {name: np.array(values, COLUMNS[name]) for name, values in columns.items()}


COLUMNS: dict[str, Any] = {
    "tree_index": np.int64,
    "node_index": np.str_,
    "left_child": np.str_,
    "right_child": np.str_,
    "split_feature": np.str_,
    "split_gain": np.float64,
    "threshold": np.float64,
    "category": np.str_,
    "missing_direction": np.str_,
    "value": np.float64,
    "count": np.int64,
}
"""The columns with their dtypes. `threshold` is NaN for a leaf and for a split by categories."""


def _index(tree: int, node: Mapping[str, Any]) -> str:
    return f"{tree}-S{node['split_index']}" if "split_index" in node else f"{tree}-L{node.get('leaf_index', 0)}"


def _nodes(tree: int, root: Mapping[str, Any], features: Sequence[str]) -> Iterator[dict[str, Any]]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if "split_index" not in node:
            yield {
                **dict.fromkeys(COLUMNS, _NONE),
                "tree_index": tree,
                "node_index": _index(tree, node),
                "split_gain": math.nan,
                "threshold": math.nan,
                "value": node["leaf_value"],
                "count": node.get("leaf_count", 0),
            }
            continue
        left, right = node["left_child"], node["right_child"]
        by_category = node["decision_type"] == "=="
        yield {
            "tree_index": tree,
            "node_index": _index(tree, node),
            "left_child": _index(tree, left),
            "right_child": _index(tree, right),
            "split_feature": features[node["split_feature"]],
            "split_gain": node["split_gain"],
            "threshold": math.nan if by_category else node["threshold"],
            "category": node["threshold"] if by_category else _NONE,
            "missing_direction": "left" if node["default_left"] else "right",
            "value": node["internal_value"],
            "count": node["internal_count"],
        }
        waiting += [right, left]
