"""The evaluation metrics of a boosting round."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# Metrics that fall as the model gets better. Of one that XGBoost does not have, its name must say so.
_LOSSES = re.compile(
    r"^(rmse|rmsle|mae|mape|mphe|logloss|mlogloss|error|merror|quantile|expectile|\w+-nloglik|\w+-deviance|.*loss.*)"
    r"(@.*)?$",
    re.IGNORECASE,
)


def latest_metrics(evals_log: Mapping[str, Mapping[str, list[Any]]]) -> dict[str, float]:
    """The newest value of each metric, `<data>-<metric>`; of a cross-validation its mean over the folds and its
    standard deviation, `<data>-<metric>-mean` and `-std`."""
    found: dict[str, float] = {}
    for data, metrics in evals_log.items():
        for metric, values in metrics.items():
            newest = values[-1]
            if isinstance(newest, tuple):
                found[f"{data}-{metric}-mean"], found[f"{data}-{metric}-std"] = newest
            else:
                found[f"{data}-{metric}"] = newest
    return found


def is_loss(name: str) -> bool:
    """Whether a smaller value of the metric of that name is a better one."""
    metric = name.partition("-")[2]
    return not metric.endswith("-std") and bool(_LOSSES.match(metric.removesuffix("-mean")))
