"""The importance of each feature to a booster."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from xgboost.libpath import find_lib_path

IMPORTANCE_TYPES = ("weight", "gain", "cover", "total_gain", "total_cover")

# The averages over the splits of a feature, each with the sum that it is computed from.
_SUMS = {"gain": "total_gain", "cover": "total_cover"}
_REQUESTS = {name: b'{"importance_type": "%s", "feature_map": ""}' % name.encode() for name in IMPORTANCE_TYPES}


def importance_names(importance_type: str, features: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the tensors with the importances of these features."""
    return tuple(f"feature_importance/{importance_type}/{feature}" for feature in features)


class Importances:
    """The importances of one booster in successive rounds."""

    def __init__(self) -> None:
        self._use(())

    def compute(self, booster: Any, types: Iterable[str]) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
        """Yield, for each type, the names of the importances and the importances of the features that the model uses.

        The values are bit for bit those of `booster.get_score`. A linear model has only weights, and with several
        groups a list of weights for each feature. Each call of XGBoost scans all trees, so if an average and its sum
        are both saved, the average is computed from the sum.
        """
        due = set(types)
        found: dict[str, list[Any]] = {}

        def score(name: str) -> list[Any]:
            if name not in found:
                found[name] = self._score(booster, name)
            return found[name]

        for name in IMPORTANCE_TYPES:
            if name in due:
                total = _SUMS.get(name)
                # In single precision, as XGBoost divides.
                found[name] = (
                    (np.array(score(total), np.float32) / np.array(score("weight"), np.float32)).tolist()
                    if total in due
                    else score(name)
                )
                yield self._names[name], found[name]

    def _use(self, features: tuple[str, ...]) -> None:
        self._used = features
        self._names = {name: importance_names(name, features) for name in IMPORTANCE_TYPES}

    def _score(self, booster: Any, name: str) -> list[Any]:
        """Return the scores of `booster.get_score`, by XGBoost's C interface where possible.

        The Python code of that method takes two thirds of its time.
        """
        function = _feature_score()
        if function is not None:
            count, groups = ctypes.c_uint64(), ctypes.c_uint64()
            names, scores = ctypes.POINTER(ctypes.c_char_p)(), ctypes.POINTER(ctypes.c_float)()
            shape = ctypes.POINTER(ctypes.c_uint64)()
            arguments = map(ctypes.byref, (count, names, groups, shape, scores))
            if function(booster.handle, _REQUESTS[name], *arguments) == 0 and groups.value == 1:
                # A training either adds features or prunes them, so an equal number means the same features.
                if count.value != len(self._used):
                    self._use(tuple(map(bytes.decode, names[: count.value])))
                return scores[: count.value]
        found = booster.get_score(importance_type=name)
        self._use(tuple(found))
        return list(found.values())


def mean_importances(boosters: Sequence[Any], types: Iterable[str]) -> Iterator[tuple[tuple[str, ...], list[float]]]:
    """Yield the names and the means over the models of a cross-validation. An unused feature counts as 0."""
    for name in types:
        each = [booster.get_score(importance_type=name) for booster in boosters]
        features = tuple(dict.fromkeys(feature for scores in each for feature in scores))
        means = [float(np.mean([scores.get(feature, 0.0) for scores in each])) for feature in features]
        yield importance_names(name, features), means


@cache
def _feature_score() -> Any:
    """Return the C function XGBoosterFeatureScore of the library that XGBoost has loaded; None if it has none."""
    try:
        return ctypes.CDLL(find_lib_path()[0]).XGBoosterFeatureScore
    except (AttributeError, IndexError, OSError, ValueError):
        return None
