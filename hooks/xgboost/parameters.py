"""The hyperparameters of a booster."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tensortrial.dtypes import Array
from tensortrial.errors import ConfigurationError

# The parts of a booster's configuration that say how it is trained; the others say what it has become.
_PARTS = ("_train_param", "generic_param", "_loss_param")


def check_parameters(value: Any) -> dict[str, Any] | None:
    """Hyperparameters as XGBoost takes them, a dictionary or pairs, by name. Raises ConfigurationError."""
    if value is None:
        return None
    try:
        return {str(name): each for name, each in dict(value).items()}
    except (TypeError, ValueError) as exc:
        raise ConfigurationError(f"hyperparameters must be a dictionary or a list of pairs, not {value!r}") from exc


def booster_parameters(booster: Any) -> dict[str, Any]:
    """What a booster itself says that it is trained with, defaults included. Numbers are in single precision."""
    learner = json.loads(booster.save_config())["learner"]
    found = {name: _parsed(value) for name, value in _leaves(learner, False)}
    metrics = [metric["name"] for metric in learner.get("metrics", ())]
    return {**found, "eval_metric": metrics} if metrics else found


def as_array(value: Any) -> Array:
    """A hyperparameter: a number or a string is an array without axes, a list of such has one; what is neither goes
    in as its text."""
    array = np.asarray(value) if isinstance(value, (bool, int, float, str, np.generic)) else _listed(value)
    return array if array.dtype.kind in "biufU" else np.asarray(str(value))


def _listed(value: Any) -> Array:
    plain = isinstance(value, (list, tuple)) and len({isinstance(each, str) for each in value}) == 1
    try:
        return np.asarray(value if plain else str(value))
    except ValueError:  # lists of different lengths
        return np.asarray(str(value))


def _leaves(part: Mapping[str, Any], inside: bool) -> Iterator[tuple[str, str]]:
    for name, value in part.items():
        if isinstance(value, dict):
            yield from _leaves(value, inside or name.endswith(_PARTS))
        elif inside and isinstance(value, str):
            yield name, value


def _parsed(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
