"""Rules on gradients."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...dtypes import Array
from ...format.index_types import SavedTensor
from ...mode import ModeKeys
from ...snapshot.saved_steps import StepInfo
from ..parameter import integer, number
from ..reader import Measured, Selector, StepView
from .base import BuiltinRule, training_mode
from .robust import relative_distance, robust_score

_GRADIENTS = Selector(("gradients",))
CROSS_ENTROPIES = Selector(patterns=(r"^(CrossEntropyLoss|NLLLoss|BCEWithLogitsLoss)_output_0$",))
_OF_PARAMETERS = Selector(patterns=("^gradient/",))
_LARGE, _TIMES = 0.3, 3.0
"""The distance, and the multiple of its bound, above which it is of several batches. A smaller one may be scaled."""
_ROUNDED = 1.1
"""The factor by which rounding may move a distance above its bound."""
_LEARNED = 0.03
"""A smaller distance shows that the model has learned the shares of the classes. Before, a rare one looks like none."""
_FEWEST, _MANY = 8, 2000
"""The fewest examples of a batch, and of all batches later, whose labels are not of one class by chance."""


class VanishingGradient(BuiltinRule):
    """Fires if a gradient is so small on average that its layer hardly learns.

    Evaluates the mean absolute value of every tensor of the collection `gradients`.
    """

    JUDGES_TOGETHER = True
    threshold: float = number(1e-7, "fires below this mean absolute value", least=0)

    def judge(self, view: StepView) -> None:
        found = self.measured(view, _GRADIENTS, "abs_mean")
        for row, (mean,) in found.where(found["abs_mean"] < self.threshold):
            self.fires(row, mean, self.threshold, f"is {mean:.3g} on average, below {self.threshold:g}")


class GradientNormSpike(BuiltinRule):
    """Fires if the norm of all gradients of a worker together rises above its recent range.

    The rule compares the logarithm of the norm with the median of the last `window` steps. It measures the distance in
    units of their median absolute deviation. Where steps are saved more rarely than before, this unit is multiplied by
    the ratio of the distances, since norms change with time.
    """

    JUDGES_TOGETHER = True
    window: int = integer(50, "steps that the norm is compared with", least=3)
    minimum: int = integer(10, "steps before the first comparison", least=3)
    threshold: float = number(8.0, "robust z-score above which it fires", least=0)
    factor: float = number(3.0, "the norm must also be above this many times the median", least=1)

    def reset(self) -> None:
        self._norms: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=self.window))
        self._steps: defaultdict[str, deque[int]] = defaultdict(lambda: deque(maxlen=self.window))

    def judge(self, view: StepView) -> None:
        found = self.measured(view, _GRADIENTS, "l2")
        size, squares = len(found.rows) // len(view.infos), np.square(found["l2"])
        workers = view.tensors.workers[view.tensor_rows(found.rows[:size])]
        of_workers = [(each, np.flatnonzero(workers == each)) for each in dict.fromkeys(workers.tolist())]
        for step, info in enumerate(view.infos):
            for worker, of_worker in of_workers:
                chosen = step * size + of_worker
                norm = math.sqrt(math.fsum(squares[chosen].tolist()))
                self._compare(worker, norm, found, chosen, info)

    def _compare(self, worker: str, norm: float, found: Measured, chosen: Array, info: StepInfo) -> None:
        before, steps, step = self._norms[worker], self._steps[worker], info.global_step
        if len(before) >= self.minimum:
            score, median = robust_score(_log(norm), before)
            score /= relative_distance(info.mode_step, steps)
            typical = math.exp(median)
            if (score > self.threshold and norm > self.factor * typical) or not math.isfinite(norm):
                largest = _largest(found.where(chosen))
                compared = f"is {norm:.3g}, after {typical:.3g} before"
                sentence = f"the norm of all gradients of {worker} {compared}; {largest} is the largest"
                limit = self.factor * typical
                self.report(sentence, tensor=largest, worker=worker, observed=norm, threshold=limit, step=step)
        if math.isfinite(norm):
            before.append(_log(norm))
            steps.append(info.mode_step)


class OutputBiasGradient(BuiltinRule):
    """Fires if the gradient of the last bias of a classifier does not fit its loss.

    Half the sum of its absolute values is the distance between the mean predicted probabilities of a batch and the
    shares of the classes in its labels. The mean cross-entropy L of a batch bounds it by 1 - exp(-L).

    - It is above 0.3 and three times its bound at `patience` saved steps, and the bias is updated at the first ones:
      gradients of earlier steps are added to it, because nothing sets them to zero. Above the sum of all bounds, it is
      scaled, which is not reported.
    - It is at least `share` of its bound at all saved steps, the bound was above 0.3, and after the distance was below
      0.03, the losses of at least 2000 examples are below 0.06: the labels of each batch are of one class.

    Both are reported after the last step. Evaluates the losses CrossEntropyLoss, NLLLoss and BCEWithLogitsLoss of
    PyTorch, the latter with one output.
    """

    patience: int = integer(5, "the fewest saved steps that show a fault", least=1)
    share: float = number(0.9, "the labels are of one class if the distance is this share of its bound", 0, 1)

    def reset(self) -> None:
        self._found: dict[tuple[str, str], _Distances] = {}

    def judge(self, view: StepView) -> None:
        if view.mode is not training_mode(self.reader.modes()):
            raise self.nothing(view, CROSS_ENTROPIES)
        losses, _ = self.rows(view, CROSS_ENTROPIES), self.find(view, _OF_PARAMETERS)
        for loss in losses:
            if loss.scalar is None or (found := _last_bias(view, loss)) is None:
                continue
            bias, examples = found
            mean, size = (self.statistic_of(view, bias, _GRADIENTS, name) or 0.0 for name in ("mean", "abs_mean"))
            if bias.shape == [1] or abs(mean) <= size / 100:  # the gradient of a softmax sums to 0
                is_updated = f"update/{bias.name.removeprefix('gradient/')}" in view.tensors.rows_of
                key, distance = (loss.name, loss.worker), np.float64(size * max(bias.shape[0] / 2, 1))
                self._found.setdefault(key, _Distances(bias)).add(bias, loss, distance, examples, is_updated)

    def invoke_at_end(self) -> bool:
        for found in self._found.values():
            self._judge_distances(found)
        return self.has_reports

    def _judge_distances(self, found: _Distances) -> None:
        if min(found.large, found.first_updates) >= self.patience and found.first_large and not found.is_scaled:
            bias, times = found.first_large
            sentence = f"is {times:.3g} times as large as the loss of one batch can make it"
            self.fires(bias, times, _TIMES, f"{sentence}: those of earlier steps are added to it")
        is_share = found.limit > _LARGE and found.least_share >= self.share and found.largest_share < _ROUNDED
        if found.count >= self.patience and is_share and (first := found.learned) is not None:
            values = self.base_trial.tensor(first.name).values(ModeKeys[first.mode], first.worker)
            later = [float(value) for step, value in values.items() if step > first.mode_step]
            fewest = found.examples
            if fewest >= _FEWEST and len(later) * fewest >= _MANY and max(later) < 2 * _LEARNED:
                sentence = f"has at least {100 * found.least_share:.0f} % of the size that the loss allows"
                why = f"at {found.count} saved steps: the labels of each batch are of one class"
                self.fires(found.bias, found.least_share, self.share, f"{sentence} {why}")


@dataclass
class _Distances:
    """The distances of a loss at all saved steps, as far as OutputBiasGradient needs them, without a row a step."""

    bias: SavedTensor
    """The gradient at the first step."""
    count: int = 0
    first_updates: int = 0
    """The number of first steps at which the bias was updated."""
    limit: float = math.nan
    """The largest limit of a distance."""
    is_scaled: bool = False
    large: int = 0
    """The number of distances that are too large for one batch."""
    first_large: tuple[SavedTensor, float] | None = None
    least_share: float = math.inf
    largest_share: float = -math.inf
    """The shares of the bounds; NaN if one is."""
    learned: SavedTensor | None = None
    """The loss at the first step with a small distance."""
    examples: float = math.inf
    """The fewest examples of a batch."""

    def add(self, bias: SavedTensor, loss: SavedTensor, distance: Any, examples: int, is_updated: bool) -> None:
        """Add the distance of one step."""
        scalar = np.float64(loss.scalar)
        bound = -np.expm1(-scalar)
        limit = scalar if self.bias.shape == [1] else bound  # the weights of BCEWithLogitsLoss need not sum to 1
        self.limit = np.fmax(self.limit, limit)
        self.is_scaled |= bool(distance > _ROUNDED * self.limit * (loss.mode_step + 1))
        if distance > np.maximum(_LARGE, _TIMES * limit):
            self.large += 1
            self.first_large = self.first_large or (bias, distance / limit)
        self.first_updates += is_updated and self.first_updates == self.count
        self.least_share = np.minimum(self.least_share, distance / bound)
        self.largest_share = np.maximum(self.largest_share, distance / bound)
        if self.learned is None and distance < _LEARNED:
            self.learned = loss
        self.examples, self.count = min(self.examples, examples), self.count + 1


def around(view: StepView, loss: SavedTensor) -> tuple[int, list[int]] | None:
    """Return the row of the output from which a loss was computed, and those of the gradients of the last layer.

    With a second loss, gradients are of several batches, such as those of a discriminator, and the result is None.
    """
    names = view.tensors.names
    if f"{loss.name.removesuffix('0')}1" in view.tensors.rows_of:
        return None
    of_worker = np.flatnonzero(view.tensors.workers == loss.worker)
    rows = of_worker[np.argsort(view.column("order", of_worker)[0])].tolist()
    at = rows.index(view.tensors.row_of[loss.name, loss.worker])
    output = next((row for row in reversed(rows[:at]) if "_output_" in names[row]), rows[at])
    # The gradients of the bias and of the weight of the last layer are the first.
    return output, [row for row in rows[at:] if names[row].startswith("gradient/")][:2]


def _last_bias(view: StepView, loss: SavedTensor) -> tuple[SavedTensor, int] | None:
    """Return the gradient of the bias from which a loss was computed, and the number of examples."""
    if (found := around(view, loss)) is None:
        return None
    (output, gradients), (names, shapes) = found, (view.tensors.names, view.tensors.shapes)
    biases = [row for row in gradients if names[row].endswith("bias") and shapes[row] == shapes[output][1:2]]
    return (view.rows(np.array(biases))[0], int(view.tensors.sizes[output]) // shapes[output][1]) if biases else None


def _largest(gradients: Measured) -> str:
    """Return the name of the gradient with the largest norm, after the last one without a norm."""
    largest = math.nan, ""
    for (name, _), norm in zip(gradients.keys, gradients["l2"].tolist(), strict=True):
        if not norm <= largest[0]:
            largest = norm, name
    return largest[1]


def _log(norm: float) -> float:
    return math.log(max(norm, 1e-300))
