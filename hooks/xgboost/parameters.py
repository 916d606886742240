"""The hyperparameters of a booster."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tensortrial.errors import ConfigurationError

# The sections of a booster's configuration with parameters of training; the others describe the trained model.
_SECTIONS = ("_train_param", "generic_param", "_loss_param")


def check_parameters(value: Any) -> dict[str, Any] | None:
    """Return hyperparameters, given as a dictionary or pairs, by name.

    Raises:
        ConfigurationError: `value` is neither.
    """
    if value is None:
        return None
    try:
        return {str(name): each for name, each in dict(value).items()}
    except (TypeError, ValueError) as exc:
        raise ConfigurationError(
            f"hyperparameters must be a dictionary or a list of pairs, got {value!r:.200}"
        ) from exc


def booster_parameters(booster: Any) -> dict[str, Any]:
    """Return the parameters of a booster, defaults included. Numbers are in single precision."""
    learner = json.loads(booster.save_config())["learner"]
    found = {name: _parsed(value) for name, value in _leaves(learner, False)}
    metrics = [metric["name"] for metric in learner.get("metrics", ())]
    return {**found, "eval_metric": metrics} if metrics else found


def _leaves(part: Mapping[str, Any], inside: bool) -> Iterator[tuple[str, str]]:
    for name, value in part.items():
        if isinstance(value, dict):
            yield from _leaves(value, inside or name.endswith(_SECTIONS))
        elif inside and isinstance(value, str):
            yield name, value


def _parsed(text: str) -> Any:
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
