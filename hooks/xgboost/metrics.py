"""The evaluation metrics of a boosting round."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# Metrics that decrease as the model improves. A custom metric does so if its name contains `loss`.
_LOSSES = re.compile(
    r"^(rmse|rmsle|mae|mape|mphe|logloss|mlogloss|error|merror|quantile|expectile|\w+-nloglik|\w+-deviance|.*loss.*)"
    r"(@.*)?$",
    re.IGNORECASE,
)


def latest_metrics(evals_log: Mapping[str, Mapping[str, list[Any]]]) -> dict[str, float]:
    """Return the newest value of each metric by its name, `<data>-<metric>`.

    A cross-validation has two of each: the mean over the folds and the standard deviation, `<data>-<metric>-mean` and
    `-std`.
    """
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
    """Return whether a smaller value of the metric is better."""
    metric = name.partition("-")[2]
    return not metric.endswith("-std") and bool(_LOSSES.match(metric.removesuffix("-mean")))
