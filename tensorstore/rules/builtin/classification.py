"""Rules on the labels and predictions of a classifier."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from ...dtypes import Array
from ...format.index_types import SavedTensor
from ..finding import three_digits
from ..parameter import flag, integer, number, regexes, text
from ..reader import Selector, StepView
from .base import BuiltinRule


class ClassImbalance(BuiltinRule):
    """Fires if the classes of the labels have very different sizes, or one of them is mostly mispredicted.

    Labels are counted over all steps, and evaluated once there are `samples` of them. Predictions are optional. They
    are paired with the labels of the same step, in the order of their names. Needs raw values.
    """

    threshold_imbalance: float = number(
        10.0, "fires if the largest class has more than this many times the labels of the smallest", least=1
    )
    threshold_misprediction: float = number(0.7, "fires if more than this share of a class is mispredicted", 0, 1)
    samples: int = integer(500, "labels that must be counted first", least=1)
    argmax: bool = flag(
        False, "use the argmax over the last axis of predictions, and of labels that have more than one axis"
    )
    labels_regex: tuple[str, ...] = regexes(".*labels", "names of labels")
    predictions_regex: tuple[str, ...] = regexes(".*predictions", "names of predictions")

    def reset(self) -> None:
        self._counts: Counter[int] = Counter()
        self._pairs: Counter[int] = Counter()
        self._wrong: Counter[int] = Counter()

    def judge(self, view: StepView) -> None:
        labels = list(self.valued(view, Selector(patterns=self.labels_regex)))
        chosen = Selector(patterns=self.predictions_regex)
        predictions = list(self.valued(view, chosen)) if len(view.find(chosen)) else []
        for position, (_, value) in enumerate(labels):
            true = _classes(value, self.argmax and value.ndim > 1)
            self._counts.update(true.tolist())
            if position < len(predictions):
                self._count_wrong(true, _classes(predictions[position][1], self.argmax))
        if sum(self._counts.values()) >= self.samples:
            self._judge_counts(labels[0][0])

    def _count_wrong(self, true: Array, predicted: Array) -> None:
        if len(true) == len(predicted):
            self._pairs.update(true.tolist())
            self._wrong.update(true[true != predicted].tolist())

    def _judge_counts(self, row: SavedTensor) -> None:
        (largest, most), (smallest, least) = self._counts.most_common()[0], self._counts.most_common()[-1]
        if (ratio := most / least) > self.threshold_imbalance:
            classes = f"{three_digits(ratio)} times as many of class {largest} as of class {smallest}"
            sentence = f"has {classes}, above {self.threshold_imbalance:g}"
            self.fires(row, ratio, self.threshold_imbalance, sentence)
        for label, count in sorted(self._pairs.items()):
            if (share := self._wrong[label] / count) > self.threshold_misprediction:
                sentence = f"class {label} is mispredicted in {share:.1%}, above {self.threshold_misprediction:.1%}"
                self.fires(row, share, self.threshold_misprediction, sentence)


class Confusion(BuiltinRule):
    """Fires if the confusion matrix of a step shows that classes are confused.

    It fires for an element below `min_diag` on the diagonal, or above `max_off_diag` off the diagonal. Each row of the
    matrix holds the examples of one class, and is divided by its sum. Rows without examples are skipped. If the
    predictions have one axis more than the labels, their argmax is used. Needs raw values.
    """

    category_no: int | None = integer(None, "the number of classes; by default the number in the step", least=1)
    labels: str = text("labels", "regular expression for the names of labels")
    predictions: str = text("predictions", "regular expression for the names of predictions")
    labels_collection: str = text("labels", "collection of the labels, if no name matches")
    predictions_collection: str = text("predictions", "collection of the predictions, if no name matches")
    min_diag: float = number(0.9, "smallest share on the diagonal", 0, 1)
    max_off_diag: float = number(0.1, "largest share off the diagonal", 0, 1)

    def check(self) -> None:
        for name in ("labels", "predictions"):
            regexes(None, "").value(self.rule_name, name, [getattr(self, name)])

    def judge(self, view: StepView) -> None:
        labels = list(self.valued(view, self._selector(view, self.labels, self.labels_collection)))
        predictions = list(self.valued(view, self._selector(view, self.predictions, self.predictions_collection)))
        for (row, true), (_, predicted) in zip(labels, predictions, strict=False):
            is_one_hot = true.ndim > 1 and true.shape == predicted.shape and true.shape[-1] > 1
            true_classes = _classes(true, is_one_hot)
            predicted_classes = _classes(predicted, predicted.ndim > 1 and predicted.shape[-1] > 1)
            if len(true_classes) == len(predicted_classes) and len(true_classes):
                self._judge_matrix(row, self._matrix(true_classes, predicted_classes))

    def _selector(self, view: StepView, pattern: str, collection: str) -> Selector:
        by_name = any(re.search(pattern, name) for name in view.tensors.rows_of)
        return Selector(patterns=(pattern,)) if by_name else Selector((collection,))

    def _matrix(self, true: Array, predicted: Array) -> Array:
        """Return the share of each predicted class (columns) in each true class (rows).

        Rows without examples are NaN.
        """
        size = self.category_no or 1 + int(max(true.max(), predicted.max(), 0))
        known = (true >= 0) & (true < size) & (predicted >= 0) & (predicted < size)
        matrix = np.zeros((size, size))
        np.add.at(matrix, (true[known], predicted[known]), 1)
        sums = matrix.sum(axis=1, keepdims=True)
        return np.divide(matrix, sums, out=np.full_like(matrix, np.nan), where=sums > 0)

    def _judge_matrix(self, row: SavedTensor, matrix: Array) -> None:
        for label, of_label in enumerate(matrix):
            right = float(of_label[label])
            if right < self.min_diag:
                sentence = f"class {label} is predicted right in {right:.1%}, below {self.min_diag:.1%}"
                self.fires(row, right, self.min_diag, sentence)
            others = np.delete(of_label, label)
            if others.size and (most := float(others.max())) > self.max_off_diag:
                wrong = int(np.flatnonzero(of_label == most)[0])
                sentence = f"class {label} is predicted as {wrong} in {most:.1%}, above {self.max_off_diag:.1%}"
                self.fires(row, most, self.max_off_diag, sentence)


def _classes(value: Array, argmax: bool) -> Array:
    """Return the class numbers of a batch, of shape (examples,).

    They are the argmax over the last axis, or the rounded values, so that a probability becomes 0 or 1.
    """
    if argmax and value.ndim:
        return np.asarray(np.argmax(np.asarray(value, np.float64), axis=-1)).reshape(-1)
    rounded = np.rint(np.asarray(value, np.float64)).reshape(-1)
    return np.nan_to_num(rounded, nan=-1.0).astype(np.int64)
