"""Numbers at the ends of their dtypes, with statistics that follow from the definitions by hand."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

_GREATEST = float(np.finfo("f8").max)
_NEAR_ONE = 1 + np.array([-1.0, 0.0, 0.0, 3.0]) * 2.0**-43
"""Elements whose deviations are exact: std / mean is 1.7e-13."""


class Extreme(NamedTuple):
    values: Any
    statistic: str
    expected: float


EXTREMES = {
    "the median of two numbers near the greatest": Extreme(np.array([1.6e308, 1.7e308]), "median", 1.65e308),
    "the median of the least number": Extreme(np.array([5e-324, 5e-324]), "median", 5e-324),
    "the mean of the greatest number": Extreme(np.array([_GREATEST, _GREATEST]), "mean", _GREATEST),
    "l2 of numbers whose squares overflow": Extreme(np.array([3e200, 4e200]), "l2", 5e200),
    "l2 of numbers whose squares vanish": Extreme(np.array([3e-200, 4e-200]), "l2", 5e-200),
    "l2 of subnormal numbers": Extreme(np.array([3e-320, 4e-320]), "l2", 5e-320),
    "rms of numbers whose squares overflow": Extreme(np.array([3e200, -3e200]), "rms", 3e200),
    "std of numbers whose squares overflow": Extreme(np.array([1e200, -1e200]), "std", 1e200),
    "std of numbers whose squares vanish": Extreme(np.array([1e-200, 3e-200]), "std", 1e-200),
    "the variance that float64 does not hold": Extreme(np.array([1e200, -1e200]), "variance", float("inf")),
    "kurtosis of numbers whose fourth powers overflow": Extreme(np.array([0.0, 0.0, 0.0, 1e100]), "kurtosis", 7 / 3),
    "skewness of numbers whose third powers vanish": Extreme(np.array([0.0, 0.0, 1e-130]), "skewness", 0.5**0.5),
    "skewness of nearly equal numbers": Extreme(_NEAR_ONE, "skewness", 8 / 9),
    "kurtosis of nearly equal numbers": Extreme(_NEAR_ONE, "kurtosis", 59 / 27),
    "skewness of equal numbers": Extreme(np.full(70, 0.1), "skewness", float("nan")),
    "int64 next to the greatest": Extreme(np.array([2**63 - 2, 2**63 - 500, 0]), "saturated_count", 0),
    "int64 next to the least": Extreme(np.array([-(2**63) + 1, 5]), "saturated_count", 0),
    "both ends of int64": Extreme(np.array([-(2**63), 2**63 - 1, 5]), "saturated_count", 2),
    "uint64 next to the greatest": Extreme(np.array([2**64 - 2, 0], "u8"), "saturated_count", 0),
    "the greatest uint64": Extreme(np.array([2**64 - 1, 0], "u8"), "saturated_count", 1),
}
