"""How far two values are apart."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tensortrial.comparison.tolerance import Gap, Tolerance, measure

EXACT = Tolerance()
floats = arrays.arrays(np.float32, 6, elements=st.floats(width=32))


@given(floats, floats)
def test_values_agree_as_numpy_says(a: Any, b: Any) -> None:
    gap = measure(a, b, Tolerance(rtol=1e-3, atol=1e-6))
    with np.errstate(all="ignore"):
        wide = a.astype(np.float64), b.astype(np.float64)
        assert gap.agrees == np.allclose(*wide, rtol=1e-3, atol=1e-6, equal_nan=True)
    assert measure(a, b, EXACT).agrees == (a.tobytes() == b.tobytes())


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("begin", [-1.0, -0.0, 0.0, 1.0, 3e4])
def test_ulps_are_the_steps_of_nextafter(dtype: Any, begin: float) -> None:
    a = np.array([begin], dtype)
    b = a
    for _ in range(5):
        b = np.nextafter(b, dtype(np.inf))
    assert measure(a, b, EXACT).ulps == 5
    assert measure(a, b, Tolerance(ulps=5)).agrees
    assert not measure(a, b, Tolerance(ulps=4)).agrees


def test_ulps_of_small_floats_and_across_the_whole_range() -> None:
    a, b = (np.array([value], ml_dtypes.bfloat16) for value in (1.0, 1.0078125))
    assert measure(a, b, EXACT).ulps == 1
    a, b = (np.array([value], ml_dtypes.float8_e4m3fn) for value in (-0.001953125, 0.001953125))
    assert measure(a, b, EXACT).ulps == 2
    low, high = np.array([-np.inf]), np.array([np.inf])
    assert measure(low, high, EXACT).ulps == 2 * int(np.array([np.inf]).view(np.int64)[0])


def test_values_that_are_no_floats() -> None:
    large = np.array([2**63 - 1, 0])
    assert measure(large, large - np.array([1, 0]), EXACT).elements == 1
    assert not measure(large, large - np.array([1, 0]), Tolerance(ulps=0)).agrees
    texts = np.array(["a", "b"]), np.array(["a", "c"])
    assert measure(*texts, EXACT) == Gap(False)
    assert measure(np.array([1 + 1j]), np.array([1 + 4j]), EXACT).max_abs == 3.0
    assert measure(np.zeros((0, 3)), np.zeros((0, 3)), EXACT) == Gap(True, 0.0, 0, 0)


def test_a_signaling_nan_is_no_warning() -> None:
    a = np.array([0x7F800001, 0x3F800000], np.uint32).view(np.float32)
    gap = measure(a, np.array([np.nan, 1], np.float32), EXACT)
    assert (gap.agrees, gap.elements, gap.ulps) == (False, 1, 0)
    assert measure(a, np.array([np.nan, 1], np.float32), Tolerance(rtol=0.0)).agrees
