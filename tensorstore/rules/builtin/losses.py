"""Rules on losses."""

from __future__ import annotations

import math
import operator
import re
from collections import defaultdict, deque
from collections.abc import Collection
from itertools import groupby

from ...errors import InvalidRuleParameter
from ...format.index_types import SavedTensor
from ...mode import ModeKeys
from ..finding import three_digits
from ..parameter import flag, integer, mode, number, regexes
from ..reader import Selector, StepView
from .base import BuiltinRule, SelectingRule, training_mode
from .robust import robust_score, standard_score

_LOSSES = Selector(("losses",))
_TRAINING = (ModeKeys.TRAIN, ModeKeys.GLOBAL)


def _begins_or_ends_with(words: str) -> re.Pattern[str]:
    """Return a pattern for the words by which a loss names its data: `val_loss`, `train/loss`, `loss-test_0`."""
    return re.compile(rf"^({words})(_\d+)?[-_/.]|[-_/.]({words})(_\d+)?$", re.IGNORECASE)


_HELD_OUT = "val|valid|validation|eval|evaluation|test"
OF_HELD_OUT_DATA = _begins_or_ends_with(_HELD_OUT)
_OF_DATA = _begins_or_ends_with(f"train|training|learn|{_HELD_OUT}")
Key = tuple[str, str]


class LossNotDecreasing(SelectingRule):
    """Fires if a loss does not fall.

    Every `num_steps` steps, the loss is compared with the newest one that is at least `num_steps` steps older. It must
    have fallen by more than `diff_percent` %. Steps are counted in the evaluated mode. The observed number of a finding
    is the rise in %, negative for a fall.
    """

    JUDGES_TOGETHER = True
    use_losses_collection: bool = flag(True, "evaluate the collection `losses` in addition to the selected tensors")
    num_steps: int = integer(10, "steps between the two losses, and between evaluations", least=1)
    diff_percent: float = number(0.1, "the smallest fall, in %", least=0)
    increase_threshold_percent: float = number(5.0, "a rise above this, in %, is reported as a rise", least=0)
    mode: ModeKeys | None = mode(
        None, "the mode to evaluate; by default EVAL if it has losses, else TRAIN, else GLOBAL"
    )

    def check(self) -> None:
        if not self.use_losses_collection and not self.collection_names and not self.tensor_regex:
            accepted = "must be true, unless tensors are selected by collection_names or tensor_regex"
            raise InvalidRuleParameter(self.rule_name, "use_losses_collection", False, accepted)

    def reset(self) -> None:
        self._compared: dict[Key, int] = {}

    @property
    def selector(self) -> Selector:
        losses = ("losses",) if self.use_losses_collection else ()
        return Selector((*losses, *(self.collection_names or ())), self.tensor_regex or ())

    def judge(self, view: StepView) -> None:
        if view.mode is not (self.mode or _validation_first(self.reader.modes_of(self.selector))):
            raise self.nothing(view, self.selector)
        compared = dict(self._compared)
        for row, loss in self.losses(view, self.selector):
            key = row.name, row.worker
            due = row.mode_step - compared.get(key, -self.num_steps) >= self.num_steps
            earlier = next(self.reader.earlier(row, row.mode_step - self.num_steps), None) if due else None
            if earlier is not None and earlier.scalar is not None:
                compared[key] = row.mode_step
                self._compare(row, loss, earlier, earlier.scalar)
        self._compared = compared  # only if every earlier step was readable

    def _compare(self, row: SavedTensor, loss: float, earlier: SavedTensor, before: float) -> None:
        rise = 100 * (loss - before) / abs(before) if before else loss * math.inf if loss else 0.0
        if rise < -self.diff_percent or (loss < math.inf and not before < math.inf):
            return
        since, moved = f"since step {earlier.global_step}", "rose" if rise > 0 else "fell"
        limit, missed = self.increase_threshold_percent, f"above {self.increase_threshold_percent:g} %"
        if math.isnan(rise):
            self.fires(row, loss, None, f"is {loss} after {before:.4g} {since}")
            return
        if rise <= limit:
            limit = -self.diff_percent
            missed = f"{'instead of falling' if rise > 0 else 'not'} by more than {self.diff_percent:g} %"
        by = f"{three_digits(abs(rise))} % {since}"
        self.fires(row, rise, limit, f"{moved} by {by}, {missed}: {before:.4g} to {loss:.4g}")


class Overfit(BuiltinRule):
    """Fires if the validation loss is too far above the training loss.

    The condition is (validation - training) / training > `ratio_threshold` in `patience` evaluations in a row. At the
    end of an evaluation, the rule compares the mean loss of the EVAL steps with that of the TRAIN steps since the last
    evaluation. The names of the two are the same, except for a word such as in `train_loss` and `val_loss`. A loss
    such as `val_loss` that is saved at a training step, as Lightning and the Trainer log it, is a whole evaluation.

    Losses that are saved at one training step as `<data>-<loss>`, such as XGBoost's `train-rmse` and
    `validation-rmse`, are compared at that step.
    """

    JUDGES_TOGETHER = True
    tensor_regex: tuple[str, ...] | None = regexes(None, "names of losses, instead of the collection `losses`")
    training_regex: tuple[str, ...] = regexes(
        "^train", "names of the training losses among those of one step; ^validation_0- for an XGBoost estimator"
    )
    start_step: int = integer(0, "the first global step to evaluate")
    patience: int = integer(1, "evaluations in a row", least=1)
    ratio_threshold: float = number(0.1, "fires above this ratio", least=0)

    def reset(self) -> None:
        self._training: defaultdict[str, dict[str, tuple[float, int]]] = defaultdict(dict)
        self._validation: defaultdict[str, dict[str, tuple[float, int]]] = defaultdict(dict)
        """The sum and the number of the losses of each worker and name since the last evaluation."""
        self._last: dict[Key, int] = {}
        self._times: defaultdict[Key, int] = defaultdict(int)

    @property
    def selector(self) -> Selector:
        return Selector(patterns=self.tensor_regex) if self.tensor_regex else _LOSSES

    def judge(self, view: StepView) -> None:
        if view.step < self.start_step:
            return
        training = view.mode is training_mode(self.reader.modes())
        if not training and view.mode is not ModeKeys.EVAL:
            raise self.nothing(view, self.selector)
        if training:
            self._judge_evaluation(view.tensors.distinct_workers)
            if self.has_reports and not len(view.find(self.selector)):
                return  # without losses of its own, this step would be skipped, and the finding lost
        losses = [each for each in self.losses(view, self.selector) if each[0].global_step >= self.start_step]
        for step, of_step in groupby(losses, lambda each: each[0].global_step):
            evaluated = set[str]()
            for row, loss in self._judge_together([*of_step]) if training else of_step:
                is_held_out = not training or bool(OF_HELD_OUT_DATA.search(row.name))
                sums = (self._validation if is_held_out else self._training)[row.worker]
                total, count = sums.get(row.name, (0.0, 0))
                sums[row.name] = total + loss, count + 1
                if is_held_out:
                    self._last[row.name, row.worker] = step
                    evaluated.add(row.worker)
            if training and evaluated:
                self._judge_evaluation(evaluated)

    def invoke_at_end(self) -> bool:
        self._judge_evaluation()
        return self.has_reports

    def _judge_evaluation(self, workers: Collection[str] | None = None) -> None:
        """Compare the losses of an evaluation that has ended, if any, for `workers`, or for all."""
        no_losses: dict[str, tuple[float, int]] = {}
        for worker in [each for each in self._validation if workers is None or each in workers]:
            training, validation = self._training.pop(worker, no_losses), self._validation.pop(worker)
            partners = {_OF_DATA.sub("", name): name for name in training if name not in validation}
            for name, (total, count) in validation.items():
                partner = name if name in training else partners.get(_OF_DATA.sub("", name))
                if partner is not None:
                    self._compare((name, worker), operator.truediv(*training[partner]), total / count)

    def _judge_together(self, losses: list[tuple[SavedTensor, float]]) -> list[tuple[SavedTensor, float]]:
        """Compare the losses of several data sets at one step. Return the losses without a partner."""
        of_training = {
            (row.name.partition("-")[2], row.worker): (row, loss)
            for row, loss in losses
            if "-" in row.name and any(re.search(pattern, row.name) for pattern in self.training_regex)
        }
        alone, names = [], {row.name for row, _ in of_training.values()}
        for row, loss in losses:
            partner = of_training.get((row.name.partition("-")[2], row.worker))
            if partner is None:
                alone.append((row, loss))
            elif row.name not in names:
                self._last[row.name, row.worker] = row.global_step
                self._compare((row.name, row.worker), partner[1], loss)
        return alone

    def _compare(self, key: Key, training: float, validation: float) -> None:
        difference = validation - training
        ratio = difference / abs(training) if training else difference * math.inf
        self._times[key] = self._times[key] + 1 if ratio > self.ratio_threshold else 0
        if self._times[key] >= self.patience:
            name, worker = key
            loss = name if worker == "worker_0" else f"{name} of {worker}"
            sentence = (
                f"{loss} is {validation:.4g} in validation and {training:.4g} in training, {ratio:.3g} above it, more "
                f"than {self.ratio_threshold:g}"
            )
            limit, step = self.ratio_threshold, self._last[key]
            self.report(sentence, tensor=name, worker=worker, observed=ratio, threshold=limit, step=step)


class Overtraining(BuiltinRule):
    """Fires if the training loss or the validation loss has no new optimum for too many saved losses in a row.

    A new optimum is better than the last one by more than `delta`. After firing, the rule counts from zero.
    """

    JUDGES_TOGETHER = True
    patience_train: int = integer(5, "saved training losses without a new optimum", least=1)
    patience_validation: int = integer(10, "saved validation losses without a new optimum", least=1)
    delta: float = number(0.01, "how much better a new optimum must be", least=0)

    def reset(self) -> None:
        self._best: dict[tuple[Key, ModeKeys], tuple[float, int]] = {}

    def judge(self, view: StepView) -> None:
        patience = self.patience_validation if view.mode is ModeKeys.EVAL else self.patience_train
        if view.mode is ModeKeys.PREDICT:
            raise self.nothing(view, _LOSSES)
        for row, loss in self.losses(view, _LOSSES):
            key = (row.name, row.worker), view.mode
            best, since = self._best.get(key, (math.inf, 0))
            best, since = (loss, 0) if loss < best - self.delta else (best, since + 1)
            if since >= patience:
                phase = "validation" if view.mode is ModeKeys.EVAL else "training"
                state = (
                    f"not fallen by more than {self.delta:g} below {best:.4g}" if best < math.inf else "been nan or inf"
                )
                steps = f"{since} {phase} step{'s' * (since != 1)}"
                self.fires(row, float(since), float(patience), f"has {state} for {steps}")
                since = 0
            self._best[key] = best, since


class LossSpike(SelectingRule):
    """Fires if a training loss jumps far above its recent values.

    The condition is a loss above mean + 6 standard deviations of the last 128 losses, by which OLMo-core's optimizers
    skip a step (its class SkipStepOptimizer, which waits for 64 losses). With `use_mean=False`, the distance from their
    median is measured in units of their median absolute deviation, which earlier spikes do not widen. Evaluates the
    collection `losses`, unless tensors are selected.
    """

    DEFAULT = _LOSSES
    JUDGES_TOGETHER = True
    window: int = integer(128, "earlier losses that the newest one is compared with", least=3)
    minimum: int = integer(20, "losses before the first comparison", least=3)
    threshold: float = number(6.0, "fires if the loss is more than this many deviations above its past", least=0)
    rise_percent: float = number(0.0, "the loss must also be this many % above its past", least=0)
    use_mean: bool = flag(True, "compare with the mean and the standard deviation, else with the median")

    def reset(self) -> None:
        self._before: defaultdict[Key, deque[float]] = defaultdict(lambda: deque(maxlen=self.window))

    def judge(self, view: StepView) -> None:
        if view.mode not in _TRAINING:
            raise self.nothing(view, self.selector)
        for row, loss in self.losses(view, self.selector):
            before = self._before[row.name, row.worker]
            if len(before) >= self.minimum:
                self._compare(row, loss, before)
            if math.isfinite(loss):
                before.append(loss)

    def _compare(self, row: SavedTensor, loss: float, before: deque[float]) -> None:
        score, median = (standard_score if self.use_mean else robust_score)(loss, before)
        rise = loss - median > abs(median) * self.rise_percent / 100
        if (score > self.threshold and rise) or not math.isfinite(loss):
            above = f", {three_digits(score)} deviations above" if math.isfinite(score) else ""
            self.fires(row, score, self.threshold, f"jumped to {loss:.4g} from {median:.4g}{above}")


def _validation_first(modes: set[ModeKeys]) -> ModeKeys | None:
    order = (ModeKeys.EVAL, ModeKeys.TRAIN, ModeKeys.GLOBAL)
    return next((each for each in order if each in modes), None)
