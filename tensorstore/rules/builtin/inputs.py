"""Rules on the inputs of a model."""

from __future__ import annotations

import math

import numpy as np

from ...errors import InvalidRuleParameter
from ...format.index_types import SavedTensor
from ..parameter import integer, number, numbers, regexes
from ..reader import Selector, StepView
from .base import BuiltinRule

# The input of a model is named after its class, with a capital letter; inputs of inner modules after their paths.
_IMAGES = r"^[A-Z]\w*_input_0$,hybridsequential0_input_0,(^|/)images?$"


class CheckInputImages(BuiltinRule):
    """Fires if images are not normalized.

    It fires after `threshold_samples` images if the mean of a channel over all of them is too far from 0. Evaluates
    tensors with four axes, of which axis 0 is the batch. The statistic `mean` suffices for images with one channel.
    Others need raw values.
    """

    threshold_mean: float = number(0.2, "fires if |mean| of a channel is above this", least=0)
    threshold_samples: int = integer(500, "images before the first evaluation", least=1)
    regex: tuple[str, ...] = regexes(_IMAGES, "names of images")
    channel: int = integer(1, "the axis of the channels")

    def reset(self) -> None:
        self._sums: dict[tuple[str, str], tuple[np.ndarray, int]] = {}

    def judge(self, view: StepView) -> None:
        selector = Selector(patterns=self.regex)
        rows = [row for row in self.rows(view, selector) if len(row.shape) == 4 and 0 not in row.shape]
        if not rows:
            raise self.nothing(view, selector)
        for row in rows:
            if self.channel >= len(row.shape):
                accepted = f"must be an axis of the images, 0 to {len(row.shape) - 1}"
                raise InvalidRuleParameter(self.rule_name, "channel", self.channel, accepted)
            self._add(row, self._means(view, row, selector))

    def _means(self, view: StepView, row: SavedTensor, selector: Selector) -> np.ndarray:
        """Return the mean of each channel, of shape (channels,)."""
        if row.shape[self.channel] == 1 and (mean := self.statistic_of(view, row, selector, "mean")) is not None:
            return np.array([mean])
        self.need_raw([row], selector)
        axes = tuple(axis for axis in range(4) if axis != self.channel)
        return np.asarray(np.mean(np.asarray(view.values([row])[0], np.float64), axis=axes))

    def _add(self, row: SavedTensor, means: np.ndarray) -> None:
        before, count = self._sums.get((row.name, row.worker), (np.zeros_like(means), 0))
        if before.shape != means.shape:
            before, count = np.zeros_like(means), 0
        count += row.shape[0]
        total = before + means * row.shape[0]
        self._sums[row.name, row.worker] = total, count
        if count < self.threshold_samples:
            return
        for channel, mean in enumerate((total / count).tolist()):
            if abs(mean) > self.threshold_mean:
                sentence = f"channel {channel} has mean {mean:.3g} over {count} images, above {self.threshold_mean:g}"
                self.fires(row, mean, self.threshold_mean, sentence)


class NLPSequenceRatio(BuiltinRule):
    """Fires if a token, such as the padding, makes up too much of the sequences.

    There is one threshold for each token. The statistic `zero_count` suffices for token 0. Others need raw values.
    """

    tensor_regex: tuple[str, ...] = regexes(r"(?i)embedding\w*_input_0,input_ids,token", "names of tensors of tokens")
    token_values: tuple[float, ...] = numbers("0", "tokens to count")
    token_thresholds_percent: tuple[float, ...] = numbers("50", "fires above this share, in %, one for each token")

    def check(self) -> None:
        if len(self.token_values) != len(self.token_thresholds_percent):
            accepted = f"must have one number for each of the {len(self.token_values)} token_values"
            raise InvalidRuleParameter(
                self.rule_name, "token_thresholds_percent", self.token_thresholds_percent, accepted
            )

    def judge(self, view: StepView) -> None:
        selector = Selector(patterns=self.tensor_regex)
        for row in self.rows(view, selector):
            for token, threshold in zip(self.token_values, self.token_thresholds_percent, strict=True):
                share = 100 * self._count(view, row, selector, token) / max(1, math.prod(row.shape))
                if share > threshold:
                    self.fires(row, share, threshold, f"is {share:.1f} % token {token:g}, above {threshold:g} %")

    def _count(self, view: StepView, row: SavedTensor, selector: Selector, token: float) -> float:
        if token == 0:
            return self.statistic_of(view, row, selector, "zero_count") or 0.0
        self.need_raw([row], selector)
        return float(np.count_nonzero(view.values([row])[0] == token))
