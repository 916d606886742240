"""The callback of the first training in an unmodified script: `python -m tensortrial run train.py`."""

from __future__ import annotations

import functools
from typing import Any

import xgboost
import xgboost.sklearn
import xgboost.training

from ..core.log import logger
from ..launch.launch import Launch, active_launch, has_own_hook
from .hook import Hook


def activate() -> None:
    """Pass a hook to the first call of `xgboost.train`, including the calls of its scikit-learn estimators."""
    launch = active_launch()
    if launch is not None:
        original = xgboost.training.train
        train = _launched(original, launch)
        for module in (xgboost, xgboost.training, xgboost.sklearn):
            if getattr(module, "train", None) is original:
                module.train = train  # type: ignore[attr-defined]


def _launched(train: Any, launch: Launch) -> Any:
    is_first = True

    @functools.wraps(train)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal is_first
        if is_first:
            is_first = False
            hook = _hook(launch, kwargs.get("callbacks"))
            if hook is not None:
                kwargs["callbacks"] = [*(kwargs.get("callbacks") or ()), hook]
        return train(*args, **kwargs)

    return call


def _hook(launch: Launch, callbacks: Any) -> Any:
    try:
        if has_own_hook() or any(isinstance(each, Hook) for each in callbacks or ()):
            return None
        return launch.make_hook(Hook)
    except Exception:  # an error here must not end the training
        logger.exception("nothing is saved of this training")
        return None
