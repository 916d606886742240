"""Rules on the labels, predictions and losses of a classifier."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from ...dtypes import Array
from ...format.index_types import SavedTensor
from ..finding import three_digits
from ..parameter import flag, integer, number, regexes, text
from ..reader import Selector, StepView
from .base import BuiltinRule, training_mode
from .gradients import CROSS_ENTROPIES, around

_OUTPUTS = Selector(patterns=(r"(?<!Loss)_output_",))
_STATISTICS = "mean", "abs_mean", "abs_max", "l2", "std", "kurtosis"
_PROBABILITIES = "gets {}, the output of a softmax or sigmoid that it computes itself,"
_OVER_EXAMPLES = "gets {}, the output of a softmax over the examples instead of the classes,"
_NEGATIVE = "is below 0, so that {} is no logarithm of probabilities,"
_EQUAL, _ROUNDED = 1e-4, 0.01
"""The differences that rounding makes in a mean of probabilities, and in a loss."""
_SURE = 0.95
"""The largest output shows a sigmoid if it is between this and 1."""
_FEWEST = 8
"""The fewest examples of a batch whose log_softmax may show that it is over them."""
_EVEN, _PEAKED = 0.5, 10.0
"""The variance and the kurtosis of logarithms of probabilities that are still nearly even."""


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


class WrongLossInput(BuiltinRule):
    """Fires if a loss of classes does not get the logits or logarithms of probabilities that it needs.

    Evaluates CrossEntropyLoss and BCEWithLogitsLoss of PyTorch, which need logits, and NLLLoss. The last output of a
    module before the loss is taken for its input if, at all saved steps, the loss has a value that this input allows,
    and the last layer has as many classes. It is wrong in one of these cases:

    - A loss that needs logits gets the output of a softmax or sigmoid.
    - The softmax or log_softmax is over the examples instead of the classes.
    - NLLLoss is below 0, as it never is for logarithms of probabilities.

    Each is reported after the last step.
    """

    patience: int = integer(5, "the fewest saved steps that show a fault", least=1)

    def reset(self) -> None:
        self._found: dict[tuple[str, str], tuple[SavedTensor, str, dict[str, float]]] = {}

    def judge(self, view: StepView) -> None:
        if view.mode is not training_mode(self.reader.modes()):
            raise self.nothing(view, CROSS_ENTROPIES)
        losses, _ = self.losses(view, CROSS_ENTROPIES), self.find(view, _OUTPUTS)
        for row, loss in losses:
            if (found := around(view, row)) is None:
                continue
            (output,) = view.rows(np.array([found[0]]))
            if output.name.endswith("_output_0"):  # of several outputs, the loss need not get the last one
                faults = self._faults(view, row, loss, output, [view.tensors.shapes[at][:1] for at in found[1]])
                first = row, output.name, dict.fromkeys(faults, 0.0)
                _, _, times = self._found.setdefault((row.name, row.worker), first)
                for fault in times:
                    times[fault] += faults.get(fault, -math.inf)

    def _faults(
        self, view: StepView, row: SavedTensor, loss: float, output: SavedTensor, classes: Sequence[list[int]]
    ) -> dict[str, bool]:
        """Return the faults that fit a loss and an output, and whether they show them."""
        values = [self.statistic_of(view, output, _OUTPUTS, name) for name in _STATISTICS]
        known = [value for value in values if value is not None]
        if min(output.shape, default=0) < 1 or len(known) < len(values):
            return {}
        mean, abs_mean, largest, norm, std, kurtosis = known
        if row.name.startswith("NLLLoss"):
            fits = -mean > (1 - _EQUAL) * abs_mean and output.shape[1:] in classes and output.shape[0] >= _FEWEST
            over_examples = _of_logarithms(output.shape, mean, std**2, kurtosis) if fits else {}
            return {_NEGATIVE: loss < -_ROUNDED, **over_examples}
        if mean < (1 - _EQUAL) * abs_mean or largest > 1 + _EQUAL:
            return {}
        if row.name.startswith("CrossEntropyLoss"):
            return _of_probabilities(loss, output.shape, classes, mean, norm)
        low, high = math.log1p(math.exp(-mean)), math.log(2) + (math.log1p(math.e) - math.log(2)) * mean
        return {_PROBABILITIES: largest > _SURE} if low - _ROUNDED <= loss <= high + _ROUNDED else {}

    def invoke_at_end(self) -> bool:
        for first, output, times in self._found.values():
            for fault, steps in times.items():
                if steps >= self.patience:
                    self.fires(first, steps, self.patience, f"{fault.format(output)} at {steps:.0f} saved steps")
        return self.has_reports


def _of_probabilities(
    loss: float, shape: Sequence[int], classes: Sequence[list[int]], mean: float, norm: float
) -> dict[str, bool]:
    """Return the fault of a cross-entropy of probabilities, whose sum over the classes or the examples is 1.

    log(sum(exp)) is convex, which bounds the loss. The mean probability of the labels is at most the root of the mean
    over the examples of the sum of squares.
    """
    for axis, fault in ((1, _PROBABILITIES), (-1, _PROBABILITIES), (0, _OVER_EXAMPLES)):
        count = shape[axis or 1] if len(shape) > 1 else 1
        if [count] in classes and count > 1 and abs(mean * shape[axis] - 1) < _EQUAL:
            low = math.log(count) + mean - norm / math.sqrt(math.prod(shape) / count)
            high = math.log(count) + math.log1p((math.e - 1) * mean)
            return {fault: True} if low - _ROUNDED <= loss <= high + _ROUNDED else {}
    return {}


def _of_logarithms(shape: Sequence[int], mean: float, variance: float, kurtosis: float) -> dict[str, bool]:
    """Return the fault of a log_softmax over the examples.

    The mean of log_softmax(x) over n numbers is -log(n) - d, where d = log(mean(exp(x - mean(x)))) is never below 0. It
    is about half the variance of x while that is small.
    """
    is_even = variance < _EVEN and not kurtosis > _PEAKED
    over_examples, over_classes = (-mean - math.log(size) for size in shape)
    if over_examples < -_ROUNDED or (is_even and over_examples > variance + _ROUNDED):
        return {}
    return {_OVER_EXAMPLES: is_even and not -_ROUNDED <= over_classes <= variance + _ROUNDED}


def _classes(value: Array, argmax: bool) -> Array:
    """Return the class numbers of a batch, of shape (examples,).

    They are the argmax over the last axis, or the rounded values, so that a probability becomes 0 or 1.
    """
    if argmax and value.ndim:
        return np.asarray(np.argmax(np.asarray(value, np.float64), axis=-1)).reshape(-1)
    rounded = np.rint(np.asarray(value, np.float64)).reshape(-1)
    return np.nan_to_num(rounded, nan=-1.0).astype(np.int64)
