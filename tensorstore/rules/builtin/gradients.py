"""Rules on gradients."""

from __future__ import annotations

import math
from collections import defaultdict, deque

import numpy as np

from ...dtypes import Array
from ...format.index_types import SavedTensor
from ...snapshot.saved_steps import StepInfo
from ..parameter import integer, number
from ..reader import Measured, Rows, Selector, StepView
from .base import BuiltinRule, training_mode
from .robust import relative_distance, robust_score

_GRADIENTS = Selector(("gradients",))
_CROSS_ENTROPIES = Selector(patterns=(r"^(CrossEntropyLoss|NLLLoss|BCEWithLogitsLoss)_output_0$",))
_OUTPUTS = Selector(patterns=(r"_output_\d+$",))
_OF_PARAMETERS = Selector(patterns=("^gradient/",))
_FEWEST_EXAMPLES = 8
"""The fewest examples of a batch. The labels of fewer are often of one class."""
_LARGEST = 1.1
"""More than the largest possible distance of two distributions, which is 1."""
_LEARNED = 0.03
"""A smaller distance shows that the model has learned the shares of the classes. Before, a rare one looks like none."""


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
    shares of the classes in its labels. The mean cross-entropy L of a batch bounds it by 1 - exp(-L), which is below 1.

    - It is above 1 at `patience` saved steps, but was not at the first ones: gradients of earlier steps are added to
      it, because nothing sets them to zero, or an unregistered GradScaler scales it.
    - It is at least `share` of 1 - exp(-L) at all saved steps, and below 0.03 at one of them: the labels of each batch
      are of one class. This is reported after the last step.

    Evaluates the losses CrossEntropyLoss, NLLLoss and BCEWithLogitsLoss of PyTorch, the latter with one output.
    """

    patience: int = integer(
        5, "saved steps at the beginning that show the usual size, and later ones above it", least=1
    )
    share: float = number(0.9, "the labels are of one class if the distance is this share of its bound", 0, 1)
    steps: int = integer(10, "the fewest saved steps by which the labels are judged", least=1)

    def reset(self) -> None:
        self._steps: defaultdict[str, int] = defaultdict(int)
        self._above: defaultdict[str, int] = defaultdict(int)
        self._scaled = set[str]()
        self._least: dict[str, tuple[float, SavedTensor]] = {}
        self._has_learned = set[str]()

    def judge(self, view: StepView) -> None:
        if view.mode is not training_mode(self.reader.modes()):
            raise self.nothing(view, _CROSS_ENTROPIES)
        losses, gradients = self.find(view, _CROSS_ENTROPIES), self.find(view, _OF_PARAMETERS)
        for row, loss in zip(losses, view.rows(losses), strict=True):
            if f"{loss.name.removesuffix('0')}1" in view.tensors.rows_of:
                continue  # the gradient is of the losses of several batches, such as those of a discriminator
            found = _last_bias(view, row, gradients, loss.name.startswith("BCE"))
            if found is None or loss.scalar is None:
                continue
            (bias,) = view.rows(np.array(found[:1]))
            if (mean := self.statistic_of(view, bias, _GRADIENTS, "abs_mean")) is not None:
                classes = bias.shape[0]
                self._compare(bias, mean * max(classes / 2, 1), loss.scalar, found[1] // classes)

    def _compare(self, bias: SavedTensor, distance: float, loss: float, examples: int) -> None:
        worker = bias.worker
        self._steps[worker] += 1
        bound = -math.expm1(-loss) if loss > 0 else 0.0
        share = distance / bound if bound > 0 and examples >= _FEWEST_EXAMPLES else math.nan
        least, first = self._least.get(worker, (math.inf, bias))
        # NaN, which no comparison undoes, for a gradient that is multiplied by a scale or a sum of several.
        self._least[worker] = (min(share, least) if share < _LARGEST and least == least else math.nan), first
        if distance < _LEARNED:
            self._has_learned.add(worker)
        if not _LARGEST < distance < math.inf:
            return
        if self._steps[worker] <= self.patience:
            self._scaled.add(worker)
        self._above[worker] += 1
        if self._above[worker] >= self.patience and worker not in self._scaled:
            sentence = f"is {distance:.3g} times as large as the loss of one batch can make it"
            self.fires(bias, distance, 1.0, f"{sentence}: those of earlier steps are added to it, or it is scaled")

    def invoke_at_end(self) -> bool:
        for worker, (least, bias) in self._least.items():
            if least >= self.share and self._steps[worker] >= self.steps and worker in self._has_learned:
                all_steps = f"all {self._steps[worker]} saved steps"
                sentence = f"has at least {100 * least:.0f} % of the size that the loss allows at {all_steps}"
                self.fires(bias, least, self.share, f"{sentence}: the labels of each batch are of one class")
        return self.has_reports


def _last_bias(view: StepView, loss: int, gradients: Rows, is_binary: bool) -> tuple[int, int] | None:
    """Return the row of the gradient of the bias from which a loss was computed, and the size of that output."""
    tensors = view.tensors
    outputs = view.find(_OUTPUTS)
    outputs, gradients = (each[tensors.workers[each] == tensors.workers[loss]] for each in (outputs, gradients))
    ((place,), before, after) = (view.column("order", each)[0] for each in (np.array([loss]), outputs, gradients))
    before[~(before < place)], after[~(after > place)] = -math.inf, math.inf
    if not len(outputs) or not len(gradients):
        return None
    output = outputs[before.argmax()]
    shape = tensors.shapes[output]
    # The gradients of the bias and of the weight of the last layer are the first.
    for gradient in gradients[np.argsort(after)[:2]].tolist():
        if tensors.names[gradient].endswith("bias") and len(shape) > 1 and tensors.shapes[gradient] == [shape[1]]:
            return (gradient, int(tensors.sizes[output])) if is_binary == (shape[1] == 1) else None
    return None


def _largest(gradients: Measured) -> str:
    """Return the name of the gradient with the largest norm, after the last one without a norm."""
    largest = math.nan, ""
    for (name, _), norm in zip(gradients.keys, gradients["l2"].tolist(), strict=True):
        if not norm <= largest[0]:
            largest = norm, name
    return largest[1]


def _log(norm: float) -> float:
    return math.log(max(norm, 1e-300))
