"""The definitions of all statistics, in one table for all implementations and the documentation.

Each statistic is a formula over a few quantities, such as the sum of all elements. An implementation (`single` and
`batched` in numpy, `tensortrial.hooks.pytorch.statistics` in torch) only measures the quantities, as attributes of an
object that also offers `sqrt`, `maximum`, `ratio` and `rounding`; the formulas are those of this table.

Results are float64 for every dtype. NaN propagates in everything but the counts. An empty tensor has counts of 0 and
NaN for the rest. A statistic that makes no sense for a dtype is left out:

    real (floats, integers, bool as 0 and 1, the dtypes of ml_dtypes)   all of STATISTICS
    complex                                                             COMPLEX_STATISTICS: std and variance of
                                                                        |x - mean|; l1, l2, rms and abs_* of the
                                                                        magnitudes, where an element with a NaN part has
                                                                        the magnitude NaN; the first three counts
    strings, dates, structures, objects                                 none
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ConfigurationError
from .sums import Floats

REDUCTIONS = ("min", "max", "mean", "median", "std", "variance", "sum", "prod", "l1", "l2")
COUNTS = ("nan_count", "inf_count", "zero_count", "subnormal_count", "saturated_count")
STATISTICS: tuple[str, ...] = (
    *REDUCTIONS,
    *("abs_" + name for name in REDUCTIONS),
    *("nan_count", "inf_count", "zero_count", "rms", "skewness", "kurtosis", "subnormal_count", "saturated_count"),
)
"""The names of all statistics, in the order of the index's columns."""
COMPLEX_STATISTICS: frozenset[str] = frozenset(
    {
        *("std", "variance", "l1", "l2", "rms", "nan_count", "inf_count", "zero_count"),
        *(name for name in STATISTICS if name.startswith("abs_")),
    }
)
"""The statistics that complex dtypes define."""

QUANTITIES = {
    "count": "the number of elements, n",
    "low": "min(x)",
    "high": "max(x)",
    "abs_low": "min(|x|)",
    "total": "sum(x)",
    "magnitude": "sum(|x|)",
    "norm": "sqrt(sum(x^2))",
    "spread": "sum((x - mean)^2)",
    "third": "sum((x - mean)^3)",
    "fourth": "sum((x - mean)^4)",
    "abs_spread": "sum((|x| - abs_mean)^2)",
    "product": "the product of all elements, rounded once: no order of multiplication makes it overflow or vanish "
    "half-way; with an infinity NaN if there is also a zero, else an infinity",
    "median": "the middle value, or the mean of the two middle ones",
    "abs_median": "the same of |x|",
    "nans": "elements that are NaN",
    "infs": "elements that are infinite",
    "zeros": "elements equal to 0, negative zero too",
    "subnormals": "elements that are not 0 and smaller than the least normal number of their dtype",
    "saturated": "elements equal to the greatest or least finite number of their dtype, but the 0 of an unsigned one",
}
"""The quantities that an implementation measures, by the name of the attribute."""

Formula = Callable[[Any], Any]
"""Computes a statistic from an object with the quantities. Any, because they may be numbers, arrays or tensors."""


ROUNDING = 1e-30
"""A spread of at most this part of sum(x^2) may be a rounding error of equal numbers, which have no shape."""


class ArrayOperations:
    """The operations of formulas on quantities that are arrays."""

    sqrt = staticmethod(np.sqrt)
    maximum = staticmethod(np.maximum)
    rounding = ROUNDING

    @staticmethod
    def ratio(numerators: Floats, denominators: Floats, reliable: npt.NDArray[np.bool_]) -> Floats:
        """Return the ratios; NaN if they are not reliable."""
        return np.where(reliable, numerators / denominators, np.nan)


def _skewness(q: Any) -> Any:
    return q.ratio(q.count**0.5 * q.third, q.spread * q.sqrt(q.spread), q.spread > q.rounding * q.norm * q.norm)


def _kurtosis(q: Any) -> Any:
    return q.ratio(q.count * q.fourth, q.spread * q.spread, q.spread > q.rounding * q.norm * q.norm)


@dataclass(frozen=True, slots=True)
class Definition:
    """The formula of a statistic from quantities."""

    name: str
    meaning: str
    """The formula in the documentation, for x flattened and n elements."""
    needs: tuple[str, ...]
    """The quantities, apart from `count`."""
    formula: Formula


_TABLE = (
    Definition("min", "min(x)", ("low",), lambda q: q.low),
    Definition("max", "max(x)", ("high",), lambda q: q.high),
    Definition("mean", "sum(x) / n", ("total",), lambda q: q.total / q.count),
    Definition("median", "middle value, or mean of the two middle ones", ("median",), lambda q: q.median),
    Definition("std", "sqrt(variance)", ("spread",), lambda q: q.sqrt(q.spread / q.count)),
    Definition("variance", "sum((x - mean)^2) / n, so ddof=0", ("spread",), lambda q: q.spread / q.count),
    Definition("sum", "sum(x)", ("total",), lambda q: q.total),
    Definition("prod", "product of x, rounded once", ("product",), lambda q: q.product),
    Definition("l1", "sum(|x|)", ("magnitude",), lambda q: q.magnitude),
    Definition("l2", "sqrt(sum(x^2))", ("norm",), lambda q: q.norm),
    Definition("abs_min", "min(|x|)", ("abs_low",), lambda q: q.abs_low),
    Definition("abs_max", "max(|x|)", ("low", "high"), lambda q: q.maximum(-q.low, q.high)),
    Definition("abs_mean", "sum(|x|) / n", ("magnitude",), lambda q: q.magnitude / q.count),
    Definition("abs_median", "median of |x|", ("abs_median",), lambda q: q.abs_median),
    Definition("abs_std", "sqrt(abs_variance)", ("abs_spread",), lambda q: q.sqrt(q.abs_spread / q.count)),
    Definition("abs_variance", "sum((|x| - abs_mean)^2) / n", ("abs_spread",), lambda q: q.abs_spread / q.count),
    Definition("abs_sum", "sum(|x|)", ("magnitude",), lambda q: q.magnitude),
    Definition("abs_prod", "product of |x|, rounded once", ("product",), lambda q: abs(q.product)),
    Definition("abs_l1", "sum(|x|)", ("magnitude",), lambda q: q.magnitude),
    Definition("abs_l2", "sqrt(sum(x^2))", ("norm",), lambda q: q.norm),
    Definition("nan_count", "elements that are NaN", ("nans",), lambda q: q.nans),
    Definition("inf_count", "elements that are infinite", ("infs",), lambda q: q.infs),
    Definition("zero_count", "elements equal to 0, negative zero too", ("zeros",), lambda q: q.zeros),
    Definition("rms", "sqrt(sum(x^2) / n)", ("norm",), lambda q: q.norm / q.count**0.5),
    Definition(
        "skewness",
        "(sum((x - mean)^3) / n) / std^3, NaN if all elements are equal",
        ("norm", "spread", "third"),
        _skewness,
    ),
    Definition(
        "kurtosis",
        "(sum((x - mean)^4) / n) / std^4, so 3 for a normal distribution; NaN if all elements are equal",
        ("norm", "spread", "fourth"),
        _kurtosis,
    ),
    Definition(
        "subnormal_count",
        "elements other than 0 that are smaller than the least normal number of the dtype",
        ("subnormals",),
        lambda q: q.subnormals,
    ),
    Definition(
        "saturated_count",
        "elements equal to the greatest or the least finite number of the dtype, except the 0 of unsigned integers; "
        "0 for bool",
        ("saturated",),
        lambda q: q.saturated,
    ),
)
DEFINITIONS: dict[str, Definition] = {definition.name: definition for definition in _TABLE}
DEGREES = {
    **dict.fromkeys(("mean", "std", "l2", "rms", "abs_mean", "abs_std", "abs_l2"), 1),
    **dict.fromkeys(("variance", "abs_variance"), 2),
    **dict.fromkeys(("skewness", "kurtosis"), 0),
}
"""Statistics whose intermediate powers may leave the range of float64, with their degrees: multiplying all elements by
s multiplies them by this power of s.
"""
FORMULAS: dict[str, Formula] = {definition.name: definition.formula for definition in _TABLE}

_ALIASES = {"l1_norm": "l1", "l2_norm": "l2", "abs_l1_norm": "abs_l1", "abs_l2_norm": "abs_l2", "var": "variance"}


def quantities_of(names: Iterable[str]) -> frozenset[str]:
    """Return the quantities that statistics need, apart from `count`, by their canonical names."""
    return frozenset(need for name in names for need in DEFINITIONS[name].needs)


def parse_statistic(name: str) -> str:
    """Return the canonical name of a statistic: `l2_norm` is `l2`.

    Args:
        name: One of STATISTICS, or another spelling of it.

    Raises:
        ConfigurationError: There is no such statistic; the message has the nearest one.
    """
    if isinstance(name, str) and (known := _ALIASES.get(name, name)) in DEFINITIONS:
        return known
    import difflib  # for messages only

    near = difflib.get_close_matches(str(name).lower(), (*STATISTICS, *_ALIASES), n=1, cutoff=0.0)
    raise ConfigurationError(
        f"unknown statistic {name!r}; did you mean {parse_statistic(near[0])!r}? "
        f"Known statistics: {', '.join(REDUCTIONS)}, each also with abs_ before it, and "
        f"{', '.join(STATISTICS[2 * len(REDUCTIONS) :])}"
    )


def parse_axis(axis: Any) -> int | None:
    """Return the number of an axis; None for no axis.

    Args:
        axis: An integer, also as text, as in JSON configurations. Negative ones count from the last axis.

    Raises:
        ConfigurationError: It is anything else.
    """
    if axis is None or (isinstance(axis, str) and axis.strip().lower() in ("", "none")):
        return None
    try:
        if isinstance(axis, bool | np.bool_):
            raise TypeError
        return int(axis) if isinstance(axis, str) else operator.index(axis)
    except (TypeError, ValueError):
        raise ConfigurationError(f"axis must be an integer or None, got {axis!r:.200}") from None


def name_by_axis(tensor: str, statistic: str, axis: int) -> str:
    """Return the name of the tensor with a statistic for each index along an axis, which is counted from the first."""
    return f"{statistic}_by_{axis}/{tensor}"
