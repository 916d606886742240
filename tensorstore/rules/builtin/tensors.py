"""Rules on any tensors."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cache

import ml_dtypes
import numpy as np

from ...config.collection import WITH_GAPS
from ...dtypes import Array, parse_dtype, to_numpys_own
from ...errors import InvalidRuleParameter
from ...format.index_types import SavedTensor
from ...mode import ModeKeys
from ..parameter import flag, integer, number
from ..reader import Measured, NotSaved, Rows, Selector, StepView
from .base import SelectingRule

# These statistics are NaN if a value is. For float32 and narrower dtypes they are infinite only if a value is.
_PROPAGATING = ("abs_max", "l2", "abs_mean", "l1", "rms")
# Statistics that are close if all values are.
_EXTREMES, _MEANS = ("min", "max", "abs_max"), ("mean", "abs_mean")
_STATE = Selector(("weights", "biases", "buffers"))
_LOW_PRECISION = ("float16", "bfloat16")
_COUNTS = ("nan_count", "inf_count")
# The tensors that a ratio is computed from are evaluated themselves.
_WITH_GAPS = Selector(WITH_GAPS, ("^update_ratio/",))


class ExplodingTensor(SelectingRule):
    """Fires if a tensor contains NaN or an infinity.

    Evaluates all tensors, unless some are selected. Tensors that hold NaN or infinities by design are skipped: ratios
    of updates to weights, the collections `trees` and `hyperparameters`, and masks of zeros and negative infinities.
    Uses the statistics `nan_count` and `inf_count`, or `abs_max`, `abs_mean`, `l1`, `l2` or `rms`, which are then not
    finite.
    """

    JUDGES_TOGETHER = True
    only_nan: bool = flag(False, "fire for NaN only")

    def judge(self, view: StepView) -> None:
        rows, are_full = self.find(view, self.selector), view.tensors.sizes != 0
        if self.selector == self.DEFAULT:
            have_no_gaps = ~view.mask(_WITH_GAPS)
            rows, are_full = view.find(self.selector, have_no_gaps), are_full & have_no_gaps
        full = view.find(self.selector, are_full)
        (nans, has_nans), (infinities, has_infinities) = (view.column(name, full) for name in _COUNTS)
        if len(uncounted := np.flatnonzero(~(has_nans & has_infinities))):
            scalars, are_scalars = view.column("scalar", full[uncounted])
            nans[uncounted], infinities[uncounted] = np.isnan(scalars) & are_scalars, np.isinf(scalars)
            uncounted = uncounted[~are_scalars]
        if len(uncounted):
            columns = (view.column(name, full[uncounted]) for name in _PROPAGATING)
            values, is_saved = map(np.array, zip(*columns, strict=True))
            nans[uncounted] = np.where((is_saved & np.isnan(values)).any(axis=0), math.nan, 0.0)
            infinities[uncounted] = np.where(np.isinf(values).any(axis=0), math.inf, 0.0)
            uncounted = uncounted[~is_saved.any(axis=0)]
            counted, lacking = view.measure(full[uncounted], _COUNTS)
            if lacking and len(lacking) == len(rows):
                raise self.insufficient(lacking[-1].row, self.selector, lacking[-1].names)
            at = np.searchsorted(full, counted.rows)
            nans[at], infinities[at] = counted["nan_count"], counted["inf_count"]
        found = Measured(view, full, {"nan_count": nans, "inf_count": infinities})
        for row, each in found.where((nans != 0) | ((infinities > 0) & (not self.only_nan))):
            self._fire(view, row, *each)

    def _fire(self, view: StepView, row: SavedTensor, nans: float, infinities: float) -> None:
        """Report a row. A count is NaN or infinite if the statistics show only that there are such values."""
        if nans:
            self.fires(row, nans, 0.0, "holds NaN" if math.isnan(nans) else f"holds {nans:.0f} NaN")
        elif math.isinf(infinities):
            self.fires(row, infinities, 0.0, "holds infinities")
        elif not _is_mask(view, row, infinities):
            self.fires(row, infinities, 0.0, f"holds {infinities:.0f} infinit{'y' if infinities == 1 else 'ies'}")


class TensorVariance(SelectingRule):
    """Fires if the variance of a tensor is above `max_threshold` or below `min_threshold`.

    At least one of the two must be set, and the tensors must be selected.
    """

    JUDGES_TOGETHER = True
    max_threshold: float | None = number(None, "fires above this variance")
    min_threshold: float | None = number(None, "fires below this variance")

    def check(self) -> None:
        _must_select(self)
        if self.max_threshold is None and self.min_threshold is None:
            raise InvalidRuleParameter(self.rule_name, "max_threshold", None, "must be set, or min_threshold, or both")

    def judge(self, view: StepView) -> None:
        least = -math.inf if self.min_threshold is None else self.min_threshold
        most = math.inf if self.max_threshold is None else self.max_threshold
        found = self.measured(view, self.selector, "variance")
        for row, (variance,) in found.where((found["variance"] > most) | (found["variance"] < least)):
            limit, where = (most, "above") if variance > most else (least, "below")
            self.fires(row, variance, limit, f"has variance {variance:.3g}, {where} {limit:g}")


class AllZero(SelectingRule):
    """Fires if at least `threshold` % of the values of a tensor are zero. The tensors must be selected."""

    JUDGES_TOGETHER = True
    threshold: float = number(100.0, "fires at this share of zeros, in %", 0, 100)

    def check(self) -> None:
        _must_select(self)

    def judge(self, view: StepView) -> None:
        found = self.measured(view, self.selector, "zero_count").shares()
        for row, (share,) in found.where(found["zero_count"] >= self.threshold):
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
        rows = self.find(view, self.selector)
        if view.mode in (ModeKeys.EVAL, ModeKeys.PREDICT):
            rows = view.find(self.selector, ~view.mask(_STATE))
        count = float(self.num_steps)
        for row, before in sorted(self._unchanged(view, rows).items()):
            unchanged = [*view.rows(np.array([row])), *before]
            if len(unchanged) == count and self._close(view, unchanged):
                steps = ", ".join(str(each.global_step) for each in reversed(unchanged))
                self.fires(unchanged[0], count, count, f"did not change over steps {steps}")

    def _unchanged(self, view: StepView, rows: Rows) -> dict[int, list[SavedTensor]]:
        """Return the rows before each row, newest first, until statistics show a change."""
        found: defaultdict[int, list[SavedTensor]] = defaultdict(list)
        for group, steps in self.reader.views_before(view, rows):
            for earlier in steps:
                there = view.tensors.rows_in(earlier.tensors, group)
                is_there = there >= 0
                differs = np.zeros(len(group), bool)
                differs[is_there] = self._differ(view, group[is_there], earlier, there[is_there])
                is_there &= ~differs
                for row, saved in zip(group[is_there].tolist(), earlier.rows(there[is_there]), strict=True):
                    found[row].append(saved)
                group = np.array([row for row in group[~differs].tolist() if len(found[row]) < self.num_steps - 1], int)
                if not len(group):
                    break
        return found

    def _differ(self, view: StepView, rows: Rows, earlier: StepView, there: Rows) -> Array:
        """Return a mask of the rows whose saved statistics, or shape, show that the tensor changed."""
        (now, is_saved), (before, _) = (
            map(np.array, zip(*(of.column(name, each) for name in _EXTREMES), strict=True))
            for of, each in ((view, rows), (earlier, there))
        )
        # Without statistics of their magnitude, the tolerance of two values is unknown.
        least_is_saved, most_is_saved, size_is_saved = is_saved
        magnitudes = np.abs([*now, *before])
        magnitudes[~np.isfinite(magnitudes)] = np.nan
        most = self.atol + self.rtol * np.fmax.reduce(magnitudes) * (1 + 1e-6)
        is_known = (size_is_saved | (least_is_saved & most_is_saved)) & np.isfinite(most)
        differs: Array = is_known & np.any(np.abs(before - now) > most, axis=0)
        for name in _MEANS if not differs.all() else ():
            (now, _), (before, _) = view.column(name, rows), earlier.column(name, there)
            differs |= is_known & (np.abs(before - now) > most)
        if earlier.tensors is not view.tensors:
            places = zip(rows.tolist(), there.tolist(), strict=True)
            differs |= np.array([view.tensors.shapes[a] != earlier.tensors.shapes[b] for a, b in places], bool)
        return differs

    def _close(self, view: StepView, rows: list[SavedTensor]) -> bool:
        self.need_raw(rows, self.selector)
        newest, *earlier = (to_numpys_own(value) for value in view.values(rows))
        if newest.dtype.kind in "SUO":
            return all(np.array_equal(each, newest) for each in earlier)
        close = (np.allclose(each, newest, self.rtol, self.atol, self.equal_nan) for each in earlier)
        return all(close)


class LowPrecisionSaturation(SelectingRule):
    """Fires if too many values of a 16-bit or 8-bit float tensor are at the limits of its dtype.

    Values at the limits are those that equal its largest number or are infinite, and those that were flushed to zero.
    Evaluates all tensors of such dtypes, unless some are selected. Tensors of other dtypes are skipped. For zeros the
    statistic `zero_count` suffices. For the largest number raw values are needed, unless `abs_max` shows that no value
    reaches it.
    """

    JUDGES_TOGETHER = True
    threshold: float = number(0.1, "fires above this % of values at the dtype's largest", 0, 100)
    threshold_zero: float = number(50.0, "fires above this % of zeros", 0, 100)

    def judge(self, view: StepView) -> None:
        self.find(view, self.selector)  # raises if there is none
        narrow = [dtype for dtype in {*view.tensors.dtypes} if _largest(dtype) is not None]
        rows = view.find(self.selector, np.isin(view.tensors.dtypes, narrow) & (view.tensors.sizes != 0))
        zeros, largest = self._saved(view, rows, "zero_count").shares(), self._saved(view, rows, "abs_max")
        limits = [_largest(dtype) for dtype in view.tensors.dtypes[view.tensor_rows(largest.rows)]]
        full = view.rows(largest.rows[~(largest["abs_max"] < np.array(limits, np.float64))])
        self.need_raw(full, self.selector)
        for row, (share,) in zeros.where(zeros["zero_count"] > self.threshold_zero):
            sentence = f"({row.dtype}) is {share:.1f} % zeros, above {self.threshold_zero:g} %"
            self.fires(row, share, self.threshold_zero, sentence)
        for row in full:
            magnitudes = np.abs(np.asarray(view.values([row])[0], np.float32))
            share = 100 * float(np.mean(~(magnitudes < (_largest(row.dtype) or math.inf))))
            if share > self.threshold:
                limit = f"at the largest number it can hold, above {self.threshold:g} %"
                self.fires(row, share, self.threshold, f"({row.dtype}) is {share:.2f} % {limit}")

    def _saved(self, view: StepView, rows: Rows, name: str) -> Measured:
        found, lacking = view.measure(rows, (name,))
        if lacking:
            raise self.insufficient(lacking[0].row, self.selector, lacking[0].names)
        return found


def _is_mask(view: StepView, row: SavedTensor, infinities: float) -> bool:
    """Return whether a tensor consists of zeros and negative infinities, which are added to logits."""
    try:
        found = view.statistics(row, ("max", "zero_count"))
    except NotSaved:
        return False
    return found is not None and found[0] == 0 and found[1] + infinities == math.prod(row.shape)


def _must_select(rule: SelectingRule) -> None:
    if rule.selector == rule.DEFAULT:
        accepted = "must select tensors, or tensor_regex must, or both"
        raise InvalidRuleParameter(rule.rule_name, "collection_names", rule.collection_names, accepted)


@cache
def _largest(dtype: str) -> float | None:
    """Return the largest number of a float dtype of 16 bits or less; None for other dtypes."""
    if dtype in _LOW_PRECISION or dtype.startswith("float8"):
        return float(ml_dtypes.finfo(parse_dtype(dtype)).max)  # type: ignore[no-untyped-call]
    return None
