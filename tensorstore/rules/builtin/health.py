"""Rules on the health of a model: its updates, outliers in its activations, and underflow in low precision."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict

import numpy as np

from ...dtypes import Array
from ...format.index_types import SavedTensor
from ..parameter import integer, number, regexes
from ..reader import Selector, StepView
from .base import LEARNING_RATES, BuiltinRule, SelectingRule

_PREFIX = "update_ratio/"
_LOAD = "/load"
Key = tuple[str, str]


class UpdateRatioOutOfRange(BuiltinRule):
    """Fires if an optimizer changes a weight by too large or too small a part of its norm, several times in a row.

    Evaluates |update| / |weight|, which the collections `health` and `updates` save as `update_ratio/<parameter>` for a
    registered optimizer. A ratio around 1e-3 is usual (A. Karpathy, "Neural Networks: Zero to Hero", lecture 4, 2022).
    Vectors, such as biases, are skipped, and so are ratios of 0 at steps with a learning rate of 0.
    """

    tensor_regex: tuple[str, ...] = regexes(f"^{_PREFIX}", "names of ratios")
    large_threshold: float = number(0.1, "fires above this ratio", least=0)
    small_threshold: float = number(1e-7, "fires below this ratio", least=0)
    patience: int = integer(5, "saved steps in a row", least=1)

    def reset(self) -> None:
        self._times: defaultdict[Key, int] = defaultdict(int)

    def judge(self, view: StepView) -> None:
        idle = any(row.scalar == 0 for row in view.select(LEARNING_RATES))
        for row in self.rows(view, Selector(patterns=self.tensor_regex)):
            ratio = row.scalar
            if ratio is None or not math.isfinite(ratio) or _is_of_vector(view, row):
                continue
            key = row.name, row.worker
            out = ratio > self.large_threshold or (ratio < self.small_threshold and not (idle and ratio == 0))
            self._times[key] = self._times[key] + 1 if out else 0
            if self._times[key] >= self.patience:
                self._fire(row, ratio)

    def _fire(self, row: SavedTensor, ratio: float) -> None:
        above = ratio > self.large_threshold
        threshold = self.large_threshold if above else self.small_threshold
        compared = f"{'above' if above else 'below'} {threshold:g}"
        self.fires(row, ratio, threshold, f"is {ratio:.3g}, {compared}, at {self.patience} saved steps in a row")


def _is_of_vector(view: StepView, row: SavedTensor) -> bool:
    updates = view.tensors.rows_of.get(f"update/{row.name.removeprefix(_PREFIX)}", ())
    return any(len(view.tensors.shapes[each]) < 2 for each in updates)


class ActivationOutliers(BuiltinRule):
    """Fires if a few activations of a layer become far larger than all others.

    The kurtosis of a normal distribution is 3. Outliers raise it to hundreds and more, and make the layer hard to
    quantize (A. Bondarenko, M. Nagel, T. Blankevoort, "Quantizable Transformers: Removing Outliers by Helping Attention
    Heads Do Nothing", arXiv 2306.12929, who measure it so). The rule compares it with the median of the first saved
    steps, since the outputs of some layers, such as a softmax over many classes, are never near normal.
    """

    JUDGES_TOGETHER = True
    tensor_regex: tuple[str, ...] = regexes("_output_,/outputs", "names of outputs of layers")
    threshold: float = number(100.0, "fires above this kurtosis", least=1)
    factor: float = number(10.0, "it must also be this many times that of the first steps", least=1)
    first: int = integer(5, "saved steps that later ones are compared with", least=1)

    def reset(self) -> None:
        self._first: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)

    def judge(self, view: StepView) -> None:
        for row, (kurtosis,) in self.measured(view, Selector(patterns=self.tensor_regex), "kurtosis"):
            if not math.isfinite(kurtosis):
                continue
            first = self._first[row.name, row.worker, row.mode]
            if len(first) < self.first:
                first.append(kurtosis)
                continue
            usual = statistics.median(first)
            if kurtosis > self.threshold and kurtosis > self.factor * usual:
                sentence = f"has kurtosis {kurtosis:.4g}, above {self.threshold:g}, and {usual:.3g} in the first steps"
                self.fires(row, kurtosis, self.threshold, sentence)


class PrecisionUnderflow(SelectingRule):
    """Fires if too many gradients in float16 or an 8-bit float are too small for their dtype.

    A subnormal number has lost digits, and smaller ones have become 0 (P. Micikevicius et al., "Mixed Precision
    Training", arXiv 1710.03740, section 3.2). Evaluates the collection `gradients`, unless tensors are selected.
    Tensors of other dtypes are skipped; bfloat16 has the range of float32.
    """

    DEFAULT = Selector(("gradients",))
    JUDGES_TOGETHER = True
    threshold: float = number(10.0, "fires above this % of subnormal numbers", 0, 100)

    def judge(self, view: StepView) -> None:
        self.find(view, self.selector)  # raises if there is none
        if not any(map(_is_narrow, {*view.tensors.dtypes[view.mask(self.selector)]})):
            return
        found = self.measured(view, self.selector, "subnormal_count").shares()
        for row, (share,) in found.where(found["subnormal_count"] > self.threshold):
            if _is_narrow(row.dtype):
                sentence = f"has {share:.3g} % subnormal numbers of {row.dtype}, above {self.threshold:g} %"
                self.fires(row, share, self.threshold, sentence)


def _is_narrow(dtype: str) -> bool:
    return dtype == "float16" or dtype.startswith(("float8", "float6", "float4"))


class AttentionLogitGrowth(BuiltinRule):
    """Fires if the largest logit of an attention layer is so large that its softmax selects a single position.

    It fires above `threshold`, beyond which training diverged (M. Wortsman et al., "Small-scale proxies for large-scale
    Transformer training instabilities", arXiv 2309.14322). It also fires above `growing`, the limit of Kimi K2's
    QK-Clip (arXiv 2507.20534), if the logit is `factor` times that of the first saved steps. Needs
    `attention_statistics` of the PyTorch hook, or the collection `attention` of the Keras hook.
    """

    JUDGES_TOGETHER = True
    tensor_regex: tuple[str, ...] = regexes(r"^attention/.*/logit_max(_\d+)?$", "names of the largest logits of heads")
    threshold: float = number(1e4, "fires above this logit", least=0)
    growing: float = number(100.0, "fires above this logit if it has grown, too", least=0)
    factor: float = number(10.0, "a logit has grown if it is this many times that of the first steps", least=1)
    first: int = integer(5, "saved steps that later ones are compared with", least=1)

    def reset(self) -> None:
        self._first: defaultdict[Key, list[float]] = defaultdict(list)

    def judge(self, view: StepView) -> None:
        for row, (logit,) in self.measured(view, Selector(patterns=self.tensor_regex), "max"):
            first = self._first[row.name, row.worker]
            if logit > self.threshold:
                self.fires(row, logit, self.threshold, f"is {logit:.4g}, above {self.threshold:g}")
            elif len(first) == self.first and logit > max(self.growing, self.factor * statistics.median(first)):
                was = f"{statistics.median(first):.3g} in the first steps"
                self.fires(row, logit, self.growing, f"is {logit:.4g}, above {self.growing:g}, and was {was}")
            if len(first) < self.first:
                first.append(logit)


class RouterCollapse(BuiltinRule):
    """Fires if the router of a mixture of experts sends nearly all tokens to a few experts.

    The load of an expert is the share of tokens whose largest router logit is its own (W. Fedus, B. Zoph, N. Shazeer,
    "Switch Transformers", arXiv 2101.03961, equation 5). The rule computes exp(entropy of the loads), the number of
    experts that are in use. The collection `health` of PyTorch and Keras saves the loads, as `router/<module>/load`; of
    other routers, the raw outputs are evaluated, whose last axis is the experts.
    """

    tensor_regex: tuple[str, ...] = regexes(
        r"^router/.*/load$,(?i)(router|\bgate)_output_0$", "names of the loads of experts, and of the logits of routers"
    )
    threshold: float = number(50.0, "fires if less than this % of the experts are in use", 0, 100)
    patience: int = integer(5, "saved steps in a row", least=1)

    def reset(self) -> None:
        self._times: defaultdict[Key, int] = defaultdict(int)

    def judge(self, view: StepView) -> None:
        for row, value in self.valued(view, self._selector(view)):
            is_load = row.name.endswith(_LOAD)
            if value.size == 0 or (value.ndim < 2 and not is_load):
                continue
            experts = value.shape[-1]
            used = experts_in_use(value if is_load else loads_of(value))
            key = row.name, row.worker
            self._times[key] = self._times[key] + 1 if 100 * used / experts < self.threshold else 0
            if self._times[key] >= self.patience:
                limit = f"less than {self.threshold:g} %, at {self.patience} saved steps in a row"
                self.fires(row, used, self.threshold / 100 * experts, f"uses {used:.2f} of {experts} experts, {limit}")

    def _selector(self, view: StepView) -> Selector:
        """Return the selector of the loads if they are saved, and else that of the raw outputs."""
        loads = tuple(pattern for pattern in self.tensor_regex if _LOAD in pattern)
        return Selector(patterns=loads if loads and len(view.find(Selector(patterns=loads))) else self.tensor_regex)


def loads_of(logits: Array) -> Array:
    """Return, for each expert, the share of tokens whose largest logit is the expert's."""
    experts = logits.shape[-1]
    chosen = np.asarray(logits, np.float32).reshape(-1, experts).argmax(axis=1)
    return np.bincount(chosen, minlength=experts) / len(chosen)


def experts_in_use(load: Array) -> float:
    """Return exp of the entropy of the experts' loads: 1 if one has all tokens, n for an even distribution over n."""
    load = np.asarray(load, np.float64)
    load = load[load > 0]
    return float(np.exp(-(load * np.log(load)).sum()))
