"""How important each feature is to a booster."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from xgboost.libpath import find_lib_path

KINDS = ("weight", "gain", "cover", "total_gain", "total_cover")

# An average over the splits of a feature, and the sum that it is made of.
_SUMS = {"gain": "total_gain", "cover": "total_cover"}
_WANTED = {kind: b'{"importance_type": "%s", "feature_map": ""}' % kind.encode() for kind in KINDS}


def importance_names(kind: str, features: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"feature_importance/{kind}/{feature}" for feature in features)


class Importances:
    """The importances of one booster, round after round."""

    def __init__(self) -> None:
        self._use(())

    def of(self, booster: Any, kinds: Iterable[str]) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
        """For each kind the names of the importances of the features that the model uses, and the importances: what
        `booster.get_score` gives, to the bit.

        A linear model has only weights, of several groups a list for each feature. One call passes over all trees, so
        the averages are made of sums that are asked for anyway.
        """
        wanted = set(kinds)
        found: dict[str, list[Any]] = {}

        def score(kind: str) -> list[Any]:
            if kind not in found:
                found[kind] = self._score(booster, kind)
            return found[kind]

        for kind in KINDS:
            if kind in wanted:
                total = _SUMS.get(kind)
                # In single precision, as XGBoost divides.
                found[kind] = (
                    (np.array(score(total), np.float32) / np.array(score("weight"), np.float32)).tolist()
                    if total in wanted
                    else score(kind)
                )
                yield self._names[kind], found[kind]

    def _use(self, features: tuple[str, ...]) -> None:
        self._used = features
        self._names = {kind: importance_names(kind, features) for kind in KINDS}

    def _score(self, booster: Any, kind: str) -> list[Any]:
        """`booster.get_score` by XGBoost's C interface: of the method's time, its Python takes two thirds."""
        function = _feature_score()
        if function is not None:
            count, groups = ctypes.c_uint64(), ctypes.c_uint64()
            names, scores = ctypes.POINTER(ctypes.c_char_p)(), ctypes.POINTER(ctypes.c_float)()
            shape = ctypes.POINTER(ctypes.c_uint64)()
            arguments = map(ctypes.byref, (count, names, groups, shape, scores))
            if function(booster.handle, _WANTED[kind], *arguments) == 0 and groups.value == 1:
                # In one training features are only added or only pruned: as many are the same ones.
                if count.value != len(self._used):
                    self._use(tuple(map(bytes.decode, names[: count.value])))
                return scores[: count.value]
        found = booster.get_score(importance_type=kind)
        self._use(tuple(found))
        return list(found.values())


def mean_importances(boosters: Sequence[Any], kinds: Iterable[str]) -> Iterator[tuple[tuple[str, ...], list[float]]]:
    """The means over the models of a cross-validation. A model that does not use a feature counts as 0."""
    for kind in kinds:
        each = [booster.get_score(importance_type=kind) for booster in boosters]
        features = tuple(dict.fromkeys(feature for scores in each for feature in scores))
        means = [float(np.mean([scores.get(feature, 0.0) for scores in each])) for feature in features]
        yield importance_names(kind, features), means


@cache
def _feature_score() -> Any:
    """XGBoosterFeatureScore of the library that XGBoost has loaded; None if it has none."""
    try:
        return ctypes.CDLL(find_lib_path()[0]).XGBoosterFeatureScore
    except (AttributeError, IndexError, OSError, ValueError):
        return None
