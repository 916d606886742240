"""The trees of a booster as columns."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensortrial.dtypes import Array
from tensortrial.errors import UnsupportedValue

# The value for leaves in columns that only splits have.
_NONE = "nan"


@dataclass(frozen=True)
class Node:
    """One node of a tree: a row of XGBoost's `trees_to_dataframe`. Trees and nodes are counted from 0."""

    tree: int
    node: int
    feature: str
    """The feature of the split; `Leaf` for a leaf."""
    split: float
    """The threshold, below which values go to `yes`. NaN for a leaf and for a split by categories."""
    yes: int | None
    no: int | None
    missing: int | None
    gain: float
    """The gain of the split; for a leaf its value."""
    cover: float
    """The sum of the second derivatives of the rows that reach the node."""
    category: str
    """The categories that go to `no`, as comma-separated numbers."""


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
    return _columns([node for i, tree in enumerate(trees) for node in _nodes(tree, first + i, features)])


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


def _nodes(tree: Mapping[str, Any], number: int, features: Sequence[str]) -> Iterator[Node]:
    """Yield the reachable nodes. XGBoost's lists also contain pruned nodes."""
    left, right = tree["left_children"], tree["right_children"]
    categories = _categories(tree)
    reached = [0]
    for node in reached:
        if left[node] >= 0:
            reached += [left[node], right[node]]
    for node in sorted(reached):
        yes, no = left[node], right[node]
        is_leaf, value = yes < 0, tree["split_conditions"][node]
        yield Node(
            tree=number,
            node=node,
            feature="Leaf" if is_leaf else features[tree["split_indices"][node]],
            split=math.nan if is_leaf or node in categories else value,
            yes=None if is_leaf else yes,
            no=None if is_leaf else no,
            missing=None if is_leaf else yes if tree["default_left"][node] else no,
            gain=value if is_leaf else tree["loss_changes"][node],
            cover=tree["sum_hessian"][node],
            category=categories.get(node, _NONE),
        )


def _categories(tree: Mapping[str, Any]) -> dict[int, str]:
    """Return the categories of the nodes that split by categories, by node."""
    slices = zip(tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"], strict=True)
    return {node: ",".join(map(str, tree["categories"][start : start + size])) for node, start, size in slices}


def _columns(nodes: Sequence[Node]) -> dict[str, Array]:
    def child(node: Node, number: int | None) -> str:
        return _NONE if number is None else f"{node.tree}-{number}"

    return {
        "Tree": np.array([node.tree for node in nodes], np.int64),
        "Node": np.array([node.node for node in nodes], np.int64),
        "ID": np.array([f"{node.tree}-{node.node}" for node in nodes], np.str_),
        "Feature": np.array([node.feature for node in nodes], np.str_),
        "Split": np.array([node.split for node in nodes], np.float64),
        "Yes": np.array([child(node, node.yes) for node in nodes], np.str_),
        "No": np.array([child(node, node.no) for node in nodes], np.str_),
        "Missing": np.array([child(node, node.missing) for node in nodes], np.str_),
        "Gain": np.array([node.gain for node in nodes], np.float64),
        "Cover": np.array([node.cover for node in nodes], np.float64),
        "Category": np.array([node.category for node in nodes], np.str_),
    }


COLUMNS = tuple(_columns([]))
