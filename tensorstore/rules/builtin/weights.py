"""Rules on weights: their initial values, and how much they change."""

from __future__ import annotations

import math
from collections import Counter
from operator import itemgetter

import numpy as np

from ...dtypes import Array
from ...format.index_types import SavedTensor
from ..finding import three_digits
from ..parameter import integer, number, regexes
from ..reader import Measured, NotSaved, Rows, Selector, StepView
from .activation_modules import RELU, patterns
from .base import INPUTS_OF_RELU, LEARNING_RATES, BuiltinRule, scalar_losses, training_mode

_WEIGHTS, _GRADIENTS, _LOSSES = Selector(("weights",)), Selector(("gradients",)), Selector(("losses",))
_PARAMETERS, _UPDATES = Selector(("weights", "biases")), Selector(("updates",))
_CENTRAL = (5.0, 95.0)  # percentiles
_OF_GRADIENTS = "gradient/", "optimizer_gradient/"
Key = tuple[str, str]


class WeightUpdateRatio(BuiltinRule):
    """Fires if weights change too much or too little from one save to the next.

    The rule computes mean |update| / (mean |weight| + epsilon) for each tensor of the collection `weights`. It
    evaluates the TRAIN steps, or the GLOBAL steps if there are none. Needs raw values.
    """

    num_steps: int | None = integer(
        None,
        "compare with the earliest save at most this many steps before; by default with the previous save",
        least=1,
    )
    large_threshold: float = number(10.0, "fires above this ratio", least=0)
    small_threshold: float = number(1e-8, "fires below this ratio", least=0)
    epsilon: float = number(1e-9, "keeps the ratio finite where weights are 0", least=0)

    def judge(self, view: StepView) -> None:
        if view.mode is not training_mode(self.reader.modes()):
            raise self.nothing(view, _WEIGHTS)
        rows = self.find(view, _WEIGHTS)
        before = self._before(view, rows)
        pairs = zip(view.rows(rows), map(before.get, rows.tolist()), strict=True)
        found = [(row, earlier) for row, earlier in pairs if earlier is not None]
        compared = [row for pair in found for row in pair]
        self.need_raw(compared, _WEIGHTS)
        values = view.values(compared)
        for position, (row, earlier) in enumerate(found):
            self._compare(row, values[2 * position], earlier, values[2 * position + 1])

    def _before(self, view: StepView, rows: Rows) -> dict[int, SavedTensor]:
        """Return the earlier row that each row is compared with; without those that have none."""
        if self.num_steps is not None:
            since = (self.reader.since(row, row.mode_step - self.num_steps) for row in view.rows(rows))
            return {at: row for at, row in zip(rows.tolist(), since, strict=True) if row is not None}
        found: dict[int, SavedTensor] = {}
        for group, steps in self.reader.views_before(view, rows):
            for earlier in steps:
                there = view.tensors.rows_in(earlier.tensors, group)
                found |= zip(group[there >= 0].tolist(), earlier.rows(there[there >= 0]), strict=True)
                group = group[there < 0]
                if not len(group):
                    break
        return found

    def _compare(self, row: SavedTensor, value: Array, earlier: SavedTensor, before: Array) -> None:
        new, old = as_numbers(value), as_numbers(before)
        if new is None or old is None or new.shape != old.shape or not new.size:
            return
        with np.errstate(all="ignore"):
            ratio = float(np.mean(np.abs(new - old)) / (np.mean(np.abs(old)) + self.epsilon))
        since = f"since step {earlier.global_step}"
        if ratio > self.large_threshold or ratio < self.small_threshold:
            is_large = ratio > self.large_threshold
            limit, where = (self.large_threshold, "above") if is_large else (self.small_threshold, "below")
            self.fires(row, ratio, limit, f"changed by a ratio of {ratio:.3g} {since}, {where} {limit:g}")


def as_numbers(value: Array) -> Array | None:
    """Return a value as float64 or complex128; None if it does not consist of numbers."""
    if value.dtype.kind in "SUO":
        return None
    return value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)


class UntrainedParameter(BuiltinRule):
    """Fires if a parameter has never changed, although an optimizer updates others, or its learning rate is 0.

    Compares the norm and the mean of each tensor of the collections `weights` and `biases` with those of the first
    step at which updates were saved, as the collections `health` and `updates` do. Evaluates the steps of training.

    - A parameter that has gradients is reported if no registered optimizer has updated it, or if all learning rates
      have always been 0.
    - A parameter that never had a gradient is reported after the last step. It may be frozen or unused, or a detached
      tensor cuts it off the loss.
    """

    JUDGES_TOGETHER = True
    patience: int = integer(10, "saved steps with updates at which the parameter had not changed", least=1)

    def reset(self) -> None:
        self._first: dict[Key, list[float]] = {}
        self._times: Counter[Key] = Counter()
        self._updated: set[Key] = set()
        self._learning: set[Key] = set()
        self._rate = math.nan
        self._newest = -1

    def judge(self, view: StepView) -> None:
        if view.mode is not training_mode(self.reader.modes()):
            raise self.nothing(view, _UPDATES)
        has_updates = bool(len(view.find(_UPDATES)))
        if not has_updates and not self._times:
            raise self.nothing(view, _UPDATES)
        found = self.measured(view, _PARAMETERS, "l2", "mean")
        view.rows(found.rows[:1])  # raises before anything is stored
        self._newest = view.step
        size, is_idle = len(found.rows) // len(view.infos), self._are_idle(view)
        values = np.stack([found["l2"], found["mean"]], axis=-1).reshape(-1, size, 2)
        keys = found.where(slice(size)).keys
        first = [self._first.setdefault(key, value) for key, value in zip(keys, values[0].tolist(), strict=True)]
        is_same = np.logical_and.accumulate((values == first).all(axis=2))
        for at in np.flatnonzero(is_same[0]).tolist():
            steps = int(is_same[:, at].sum())
            times = self._times[keys[at]] + (np.arange(steps) + 1 if has_updates else np.zeros(steps, int))
            self._judge_parameter(keys[at], found.where(slice(at, steps * size, size)), times, is_idle[:steps])
            self._times[keys[at]] = int(times[-1])
        for at in np.flatnonzero(~is_same[-1]).tolist():
            self._first[keys[at]] = [math.nan, math.nan]

    def _are_idle(self, view: StepView) -> Array:
        """Return, for each step, whether all learning rates until then were 0, and one is known."""
        rates, _ = view.column("scalar", view.find(LEARNING_RATES))
        rates = np.fmax.reduce(rates.reshape(len(view.infos), -1), axis=1, initial=self._rate)
        self._rate = float(np.fmax.reduce(rates))
        return np.fmax.accumulate(rates) == 0

    def _judge_parameter(self, key: Key, unchanged: Measured, times: Array, is_idle: Array) -> None:
        """Report a parameter at the steps of a view at which it had not changed yet, each with the saved updates."""
        rows, (name, worker) = unchanged.view.tensors.row_of, key
        if is_updated := (f"update/{name}", worker) in rows:
            self._updated.add(key)
        if is_updated or any((f"{kind}{name}", worker) in rows for kind in _OF_GRADIENTS):
            self._learning.add(key)
        if key not in self._learning:
            return
        at = np.flatnonzero((times >= self.patience) & (is_idle | (key not in self._updated)))
        for steps, idle, (row, _) in zip(times[at].tolist(), is_idle[at].tolist(), unchanged.where(at), strict=True):
            why = "the learning rate was 0" if idle else "no optimizer updated it"
            self.fires(row, steps, self.patience, f"has gradients, but {why} at {steps} saved steps")

    def invoke_at_end(self) -> bool:
        saved = set(self.base_trial.tensor_names())
        learns = {name: any(f"{kind}{name}" in saved for kind in _OF_GRADIENTS) for name, _ in self._first}
        for (name, worker), times in self._times.items() if any(learns.values()) else ():
            if times >= self.patience and not learns[name] and not math.isnan(self._first[name, worker][0]):
                sentence = f"{name} had no gradient and did not change at {times} saved steps, while others had one"
                self.report(sentence, tensor=name, worker=worker, observed=0.0, threshold=0.0, step=self._newest)
        return self.has_reports


class PoorWeightInitialization(BuiltinRule):
    """Fires if activations, gradients or losses suggest that the weights were badly initialized.

    Evaluates the first `steps` steps that have the tensors that it needs. It fires if one of these is true:

    - The variances of the activation inputs of two layers differ by more than a factor of `threshold`.
    - The central 90 % of a gradient's values are within `distribution_range`.
    - The loss has not fallen for `patience` steps.

    The finding says which. Variances and losses need statistics. Percentiles need raw values or histograms. A ReLU
    module of PyTorch is also found by its class, under any name.
    """

    activation_inputs_regex: tuple[str, ...] = regexes(INPUTS_OF_RELU, "names of inputs of activation functions")
    threshold: float = number(10.0, "fires if the largest variance is more than this many times the smallest", least=1)
    distribution_range: float = number(0.001, "fires if p95 - p5 of a gradient is below this", least=0)
    patience: int = integer(5, "fires if no loss in this many steps is below the earlier ones", least=1)
    steps: int = integer(10, "number of first steps to evaluate", least=1)

    def reset(self) -> None:
        self._judged = set[int]()
        self._best: dict[tuple[str, str], tuple[float, int]] = {}

    def judge(self, view: StepView) -> None:
        if len(self._judged - {view.step}) >= self.steps:
            return
        if view.mode is not training_mode(self.reader.modes()):
            raise self.nothing(view, _GRADIENTS)
        judged = [self._judge_variances(view), self._judge_gradients(view), self._judge_losses(view)]
        if not any(judged):
            raise self.nothing(view, Selector(("gradients", "losses"), self._inputs().patterns))
        self._judged.add(view.step)

    def _inputs(self) -> Selector:
        is_default = self.is_default("activation_inputs_regex")
        of_modules = patterns(self.base_trial, RELU, "input") if is_default else ()
        return Selector(patterns=(*self.activation_inputs_regex, *of_modules))

    def _judge_variances(self, view: StepView) -> bool:
        selector = self._inputs()
        if not len(view.find(selector)):
            return False
        found = [(variance, row) for row, (variance,) in self.measured(view, selector, "variance") if variance >= 0]
        if len(found) < 2:
            return bool(found)
        (least, narrowest), (most, broadest) = min(found, key=itemgetter(0)), max(found, key=itemgetter(0))
        ratio = most / least if least else math.inf
        if ratio > self.threshold and most > 0:
            more = f"{three_digits(ratio)} times the variance of {narrowest.name}"
            sentence = f"is the input of an activation with {more}, above {self.threshold:g}"
            self.fires(broadest, ratio, self.threshold, sentence)
        return True

    def _judge_gradients(self, view: StepView) -> bool:
        judged = False
        for row in view.select(_GRADIENTS, statistics=True):
            try:
                width = _central_width(view, row)
            except NotSaved:
                continue
            judged = True
            if width < self.distribution_range:
                sentence = f"has its central 90 % within {width:.3g}, below {self.distribution_range:g}"
                self.fires(row, width, self.distribution_range, sentence)
        return judged

    def _judge_losses(self, view: StepView) -> bool:
        losses = scalar_losses(view.select(_LOSSES))
        for row, loss in losses:
            key = row.name, row.worker
            best, since = self._best.get(key, (math.inf, -1))
            best, since = (loss, 0) if loss < best else (best, since + 1)
            self._best[key] = best, since
            if since >= self.patience:
                state, steps = f"not fallen below {best:.4g}", since
                if best == math.inf:
                    state, steps = "been nan or inf", since + 1
                self.fires(row, loss, best, f"has {state} for {steps} step{'s' * (steps != 1)}")
        return bool(losses)


def _central_width(view: StepView, row: SavedTensor) -> float:
    """Return p95 - p5 of the values; infinite for fewer than two values."""
    if row.has_raw:
        value = np.asarray(view.values([row])[0], np.float64)
        return float(np.subtract(*np.percentile(value, _CENTRAL[::-1]))) if value.size > 1 else math.inf
    if row.histogram is None:
        raise NotSaved(row, ())
    counts = np.cumsum([0, *row.histogram["counts"]])
    low, high = np.interp(np.array(_CENTRAL) / 100 * counts[-1], counts, row.histogram["edges"])
    return float(high - low)
