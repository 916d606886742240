"""Rules on any tensors."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from ...dtypes import Array, parse_dtype
from ...errors import InvalidRuleParameter
from ...format.index_types import SavedTensor
from ...mode import ModeKeys
from ..parameter import flag, integer, number
from ..reader import NotSaved, Selector, StepView
from .base import SelectingRule

# NaN makes each of these NaN. For float32 and narrower dtypes only an infinity makes one infinite.
_PROPAGATING = ("abs_max", "l2", "abs_mean", "l1", "rms")
# If all values are close, so are these.
_BOUNDED = ("min", "max", "mean", "abs_mean", "abs_max")
_STATE = Selector(("weights", "biases", "buffers"))
_LOW_PRECISION = ("float16", "bfloat16")
# Both tensors that a ratio is computed from are evaluated.
_RATIOS = "update_ratio/"
# A leaf has NaN where only a split has a number, and NaN is a setting of XGBoost.
_WITH_GAPS = Selector(("trees", "hyperparameters"))


class ExplodingTensor(SelectingRule):
    """Fires if a tensor contains NaN or an infinity.

    Evaluates all tensors, unless some are selected, but not those that hold NaN or infinities by design: the ratios of
    updates to weights, which are infinite or NaN for a weight of zeros, the collections `trees` and `hyperparameters`,
    and masks that consist of zeros and negative infinities. Uses the statistics `nan_count` and `inf_count`, or
    `abs_max`, `abs_mean`, `l1`, `l2` or `rms`, which are then not finite.
    """

    only_nan: bool = flag(False, "fire for NaN only")

    def judge(self, view: StepView) -> None:
        lacking, judged = None, False
        is_chosen = bool(self.collection_names or self.tensor_regex)
        with_gaps = set() if is_chosen else {row.name for row in view.select(_WITH_GAPS)}
        for row in self.rows(view, self.selector):
            if row.name in with_gaps or (row.name.startswith(_RATIOS) and not is_chosen):
                continue
            try:
                self._judge(view, row)
                judged = True
            except NotSaved as exc:
                lacking = exc
        if lacking is not None and not judged:
            raise self.insufficient(lacking.row, self.selector, lacking.names)

    def _judge(self, view: StepView, row: SavedTensor) -> None:
        if 0 in row.shape:
            return
        propagated = [value for name in _PROPAGATING if (value := view.saved(row, name)) is not None]
        counts = view.saved(row, "nan_count"), view.saved(row, "inf_count")
        if None in counts and propagated:
            if any(map(math.isnan, propagated)):
                self.fires(row, math.nan, 0.0, "holds NaN")
            elif not self.only_nan and any(map(math.isinf, propagated)):
                self.fires(row, math.inf, 0.0, "holds infinities")
            return
        found = view.statistics(row, ("nan_count", "inf_count"))
        if found is None:
            return
        nans, infinities = found
        if nans:
            self.fires(row, nans, 0.0, f"holds {nans:.0f} NaN")
        elif infinities and not self.only_nan and not _is_mask(view, row, infinities):
            self.fires(row, infinities, 0.0, f"holds {infinities:.0f} infinities")


class TensorVariance(SelectingRule):
    """Fires if the variance of a tensor is above `max_threshold` or below `min_threshold`.

    At least one of the two must be set, and the tensors must be selected.
    """

    max_threshold: float | None = number(None, "fires above this variance")
    min_threshold: float | None = number(None, "fires below this variance")

    def check(self) -> None:
        _must_select(self)
        if self.max_threshold is None and self.min_threshold is None:
            raise InvalidRuleParameter(self.rule_name, "max_threshold", None, "must be set, or min_threshold, or both")

    def judge(self, view: StepView) -> None:
        for row, (variance,) in self.measured(view, self.selector, "variance"):
            if self.max_threshold is not None and variance > self.max_threshold:
                self.fires(
                    row, variance, self.max_threshold, f"has variance {variance:.3g}, above {self.max_threshold:g}"
                )
            elif self.min_threshold is not None and variance < self.min_threshold:
                self.fires(
                    row, variance, self.min_threshold, f"has variance {variance:.3g}, below {self.min_threshold:g}"
                )


class AllZero(SelectingRule):
    """Fires if at least `threshold` % of the values of a tensor are zero. The tensors must be selected."""

    threshold: float = number(100.0, "fires at this share of zeros, in %", 0, 100)

    def check(self) -> None:
        _must_select(self)

    def judge(self, view: StepView) -> None:
        for row, (zeros,) in self.measured(view, self.selector, "zero_count"):
            size = math.prod(row.shape)
            if size and (share := 100 * zeros / size) >= self.threshold:
                self.fires(row, share, self.threshold, f"is {share:.4g} % zeros, at least {self.threshold:g} %")


class UnchangedTensor(SelectingRule):
    """Fires if the last `num_steps` saved values of a tensor are all close to one another.

    Two values are close by `numpy.allclose` if |a - b| <= atol + rtol |b|. Only values of the same mode are compared.
    Weights, biases and buffers are skipped in EVAL and PREDICT, where they do not change. Statistics can show only that
    a tensor changed; raw values are needed to show that it did not. The tensors must be selected.
    """

    num_steps: int = integer(3, "number of values to compare", least=2)
    rtol: float = number(1e-5, "relative tolerance", least=0)
    atol: float = number(1e-8, "absolute tolerance", least=0)
    equal_nan: bool = flag(False, "whether NaN is close to NaN")

    def check(self) -> None:
        _must_select(self)

    def judge(self, view: StepView) -> None:
        is_idle = view.mode in (ModeKeys.EVAL, ModeKeys.PREDICT)
        state = {row.name for row in view.select(_STATE)} if is_idle else set()
        for row in self.rows(view, self.selector):
            if row.name in state:
                continue
            rows = self._unchanged(view, row)
            if len(rows) == self.num_steps and self._close(view, rows):
                steps = ", ".join(str(each.global_step) for each in reversed(rows))
                self.fires(row, float(self.num_steps), float(self.num_steps), f"did not change over steps {steps}")

    def _unchanged(self, view: StepView, row: SavedTensor) -> list[SavedTensor]:
        """Return the row and those before it, newest first, until statistics show a change."""
        rows = [row]
        for earlier in self.reader.earlier(row):
            if len(rows) == self.num_steps or self._differ(view, earlier, row):
                break
            rows.append(earlier)
        return rows

    def _differ(self, view: StepView, row: SavedTensor, newest: SavedTensor) -> bool:
        """Return whether saved statistics, or the shape, show that the tensor changed."""
        if row.shape != newest.shape:
            return True
        most = self._most(view, row, newest)
        for name in _BOUNDED if math.isfinite(most) else ():
            a, b = view.saved(row, name), view.saved(newest, name)
            if a is not None and b is not None and abs(a - b) > most:
                return True
        return False

    def _most(self, view: StepView, row: SavedTensor, newest: SavedTensor) -> float:
        """Return the largest difference that two close values can have.

        It is infinite if the statistics do not show how large the values are.
        """
        extremes = [view.saved(each, name) for each in (row, newest) for name in ("abs_max", "min", "max")]
        magnitudes = [abs(each) for each in extremes if each is not None and math.isfinite(each)]
        complete = view.saved(newest, "abs_max") is not None or (
            view.saved(newest, "min") is not None and view.saved(newest, "max") is not None
        )
        return self.atol + self.rtol * max(magnitudes) * (1 + 1e-6) if complete and magnitudes else math.inf

    def _close(self, view: StepView, rows: list[SavedTensor]) -> bool:
        for row in rows:
            if not row.has_raw:
                raise self.insufficient(row, self.selector, ())
        newest, *earlier = (_comparable(value) for value in view.values(rows))
        if newest.dtype.kind in "SUO":
            return all(np.array_equal(each, newest) for each in earlier)
        close = (np.allclose(each, newest, self.rtol, self.atol, self.equal_nan) for each in earlier)
        return all(close)


class LowPrecisionSaturation(SelectingRule):
    """Fires if too many values of a 16-bit or 8-bit float tensor are at the limits of its dtype.

    At the limits are values that equal its largest number or are infinite, and values that were flushed to zero.
    Evaluates all tensors of such dtypes, unless some are selected. Tensors of other dtypes are skipped. For zeros the
    statistic `zero_count` suffices. For the largest number raw values are needed, unless `abs_max` shows that no value
    reaches it.
    """

    threshold: float = number(0.1, "fires above this % of values at the dtype's largest", 0, 100)
    threshold_zero: float = number(50.0, "fires above this % of zeros", 0, 100)

    def judge(self, view: StepView) -> None:
        for row in self.rows(view, self.selector):
            largest = _largest(row.dtype)
            if largest is None or 0 in row.shape:
                continue
            try:
                self._judge_zeros(view, row)
                self._judge_largest(view, row, largest)
            except NotSaved as exc:
                raise self.insufficient(row, self.selector, exc.names) from None

    def _judge_zeros(self, view: StepView, row: SavedTensor) -> None:
        found = view.statistics(row, ("zero_count",))
        share = 100 * (found[0] if found else 0) / math.prod(row.shape)
        if share > self.threshold_zero:
            self.fires(
                row,
                share,
                self.threshold_zero,
                f"({row.dtype}) is {share:.1f} % zeros, above {self.threshold_zero:g} %",
            )

    def _judge_largest(self, view: StepView, row: SavedTensor, largest: float) -> None:
        found = view.statistics(row, ("abs_max",))
        if found and found[0] < largest:
            return
        if not row.has_raw:
            raise NotSaved(row, ())
        magnitudes = np.abs(np.asarray(view.values([row])[0], np.float32))
        share = 100 * float(np.mean(~(magnitudes < largest)))
        if share > self.threshold:
            sentence = f"({row.dtype}) is {share:.2f} % at the largest number it can hold, above {self.threshold:g} %"
            self.fires(row, share, self.threshold, sentence)


def _is_mask(view: StepView, row: SavedTensor, infinities: float) -> bool:
    """Return whether a tensor consists of zeros and negative infinities, which are added to logits."""
    try:
        found = view.statistics(row, ("max", "zero_count"))
    except NotSaved:
        return False
    return found is not None and found[0] == 0 and found[1] + infinities == math.prod(row.shape)


def _must_select(rule: SelectingRule) -> None:
    if not rule.collection_names and not rule.tensor_regex:
        accepted = "must select tensors, or tensor_regex must, or both"
        raise InvalidRuleParameter(rule.rule_name, "collection_names", rule.collection_names, accepted)


def _comparable(value: Array) -> Array:
    # numpy cannot compare the dtypes of ml_dtypes.
    return value.astype(np.float32) if value.dtype.kind == "V" else value


def _largest(dtype: str) -> float | None:
    """Return the largest number of a float dtype of 16 bits or less; None for other dtypes."""
    if dtype in _LOW_PRECISION or dtype.startswith("float8"):
        return float(ml_dtypes.finfo(parse_dtype(dtype)).max)  # type: ignore[no-untyped-call]
    return None
