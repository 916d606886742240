"""The built-in rules on decision trees, on runs whose values are known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from support.rule_runs import Write
from tensortrial import rules
from tensortrial.rules import invoke_rule


def importances(values: Iterable[float]) -> dict[str, Any]:
    return {f"feature_importance/weight/f{i}": value for i, value in enumerate(values)}


def test_feature_importance_overweight(write: Write) -> None:
    trial = write(
        [importances([1.0] * 10), importances([9.0, 9.0, 9.0, 1.0, 1.0])], collections=("feature_importance",)
    )
    (finding,) = invoke_rule(rules.FeatureImportanceOverweight(trial))
    assert finding.step == 1
    assert finding.observed == pytest.approx(27 / 29)
    assert invoke_rule(rules.FeatureImportanceOverweight(trial, nfeatures=1)) == []


def test_tree_depth(write: Write) -> None:
    trees = [{"trees/Node": np.arange(n), "trees/Feature": np.array(["f0"] * n)} for n in (1, 32, 33)]
    trial = write(trees, collections=("trees",))
    (finding,) = invoke_rule(rules.TreeDepth(trial))
    assert (finding.step, finding.observed, finding.threshold) == (2, 5.0, 4.0)
    assert invoke_rule(rules.TreeDepth(trial, depth="5")) == []
