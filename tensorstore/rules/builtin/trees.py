"""Rules on models of decision trees."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np

from ...format.index_types import SavedTensor
from ..parameter import integer, number, regexes
from ..reader import Selector, StepView
from .base import BuiltinRule

_TREES = Selector(("trees",))


class FeatureImportanceOverweight(BuiltinRule):
    """Fires if the `nfeatures` most important features have too much of the total importance.

    Features that the model does not use have no importance.
    """

    threshold: float = number(0.8, "fires above this share of the most important features", 0, 1)
    nfeatures: int = integer(3, "number of most important features", least=1)
    tensor_regex: tuple[str, ...] = regexes(".*feature_importance/weight", "names of importances")

    def judge(self, view: StepView) -> None:
        weights: defaultdict[str, list[tuple[float, SavedTensor]]] = defaultdict(list)
        for row, value in self.valued(view, Selector(patterns=self.tensor_regex)):
            weights[row.worker] += [(float(each), row) for each in np.asarray(value, np.float64).reshape(-1)]
        for of_worker in weights.values():
            of_worker.sort(key=lambda pair: pair[0], reverse=True)
            total = math.fsum(weight for weight, _ in of_worker)
            top = of_worker[: self.nfeatures]
            share = math.fsum(weight for weight, _ in top) / total if total else 0.0
            if share > self.threshold:
                count = f"{len(top)} of {len(of_worker)} features have" if len(of_worker) > 1 else "it has"
                sentence = f"leads: {count} {share:.1%} of the importance, above {self.threshold:.1%}"
                self.fires(top[0][1], share, self.threshold, sentence)


class TreeDepth(BuiltinRule):
    """Fires if a tree is too deep: floor(log2(largest node id)) > `depth`.

    Evaluates the node ids in the collection `trees`. The statistic `max` suffices.
    """

    depth: int = integer(4, "fires above this depth", least=0)

    def judge(self, view: StepView) -> None:
        rows = [row for row in self.rows(view, _TREES) if row.name.rpartition("/")[2].lower() == "node"]
        if not rows:
            raise self.nothing(view, _TREES)
        for row in rows:
            largest = self.statistic_of(view, row, _TREES, "max") or 0.0
            depth = math.floor(math.log2(largest)) if largest >= 1 else 0
            if depth > self.depth:
                sentence = f"has node {largest:.0f}, so a depth of {depth}, above {self.depth}"
                self.fires(row, depth, self.depth, sentence)
