"""Statistics along an axis are those of each slice, as numpy computes them."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.extreme_numbers import EXTREMES, Extreme
from tensortrial.errors import ConfigurationError
from tensortrial.statistics.by_axis import axis_within, statistics_by_axis
from tensortrial.statistics.definitions import STATISTICS, name_by_axis, parse_axis
from tensortrial.statistics.single import statistics

NUMPY: dict[str, Any] = {
    "min": np.min,
    "max": np.max,
    "mean": np.mean,
    "median": np.median,
    "std": np.std,
    "sum": np.sum,
    "prod": np.prod,
    "l1": lambda x, axis: np.abs(x).sum(axis),
    "l2": lambda x, axis: np.sqrt((x * x).sum(axis)),
    "rms": lambda x, axis: np.sqrt((x * x).mean(axis)),
    "abs_min": lambda x, axis: np.abs(x).min(axis),
    "abs_max": lambda x, axis: np.abs(x).max(axis),
    "abs_median": lambda x, axis: np.median(np.abs(x), axis),
    "abs_std": lambda x, axis: np.abs(x).std(axis),
    "nan_count": lambda x, axis: np.isnan(x).sum(axis),
    "inf_count": lambda x, axis: np.isinf(x).sum(axis),
    "zero_count": lambda x, axis: (x == 0).sum(axis),
}
NUMBERS = st.floats(-4, 4, width=16) | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1e-7])


@st.composite
def tensors(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], int]:
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    flat = draw(st.lists(NUMBERS, min_size=math.prod(shape), max_size=math.prod(shape)))
    dtype = draw(st.sampled_from(["float16", "float32", "float64", ml_dtypes.bfloat16]))
    array = np.array(flat).reshape(shape).astype(dtype)
    order = draw(st.permutations(range(len(shape))))
    return array.transpose(order), draw(st.integers(-len(shape), len(shape) - 1))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(drawn=tensors())
def test_statistics_along_an_axis_are_numpys(drawn: tuple[np.ndarray[Any, Any], int]) -> None:
    array, axis = drawn
    others = tuple(each for each in range(array.ndim) if each != axis % array.ndim)
    found = statistics_by_axis(array, NUMPY, axis)
    wide = array.astype(np.float64)
    with np.errstate(all="ignore"):
        for name, reduce in NUMPY.items():
            assert found[name].shape == (array.shape[axis],)
            assert found[name].dtype == np.float64
            expected = reduce(wide, axis=others)
            np.testing.assert_allclose(found[name], expected, rtol=1e-9, atol=1e-9, err_msg=name)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(drawn=tensors())
def test_every_statistic_along_an_axis_is_that_of_each_slice(drawn: tuple[np.ndarray[Any, Any], int]) -> None:
    array, axis = drawn
    check(array, axis)


def check(array: np.ndarray[Any, Any], axis: int, rtol: float = 1e-9) -> None:
    found = statistics_by_axis(array, STATISTICS, axis)
    for index, part in enumerate(np.moveaxis(array, axis, 0)):
        expected = statistics(part, STATISTICS)
        # A variance of numbers that are nearly equal is their rounding, and their shape means nothing.
        sharp = expected["std"] > 1e-5 * expected["rms"]
        assert list(found) == list(expected)
        for name, value in expected.items():
            if sharp or name not in ("skewness", "kurtosis"):
                assert is_near(float(found[name][index]), value, rtol), (name, index)


def is_near(found: float, expected: float, rtol: float) -> bool:
    """Compare as `pytest.approx` does, in a hundredth of its time."""
    if math.isfinite(expected):
        return abs(found - expected) <= max(rtol * abs(expected), rtol)
    return found == expected or (math.isnan(found) and math.isnan(expected))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint16", "bool", ml_dtypes.float8_e4m3fn])
def test_tensors_of_many_blocks(dtype: Any, axis: int) -> None:
    array = (np.random.default_rng(0).standard_normal((70, 30, 50)) * 100).astype(dtype)
    check(array, axis)
    check(np.asfortranarray(array), axis)


def test_slices_that_are_longer_than_a_block() -> None:
    array = np.random.default_rng(0).standard_normal((3, 70_000)).astype(np.float32)
    array[1, 5] = np.nan
    check(array, 0)
    check(array.T, -1)


def test_products_neither_overflow_nor_vanish_half_way() -> None:
    rows = np.array([[1e200, 1e200, 1e-200, 1e-200], [1e-300, 1e-300, 1e300, 1e300], [2.0, 3.0, 4.0, 5.0]])
    np.testing.assert_allclose(statistics_by_axis(rows, ["prod"], 0)["prod"], [1.0, 1.0, 120.0])
    rng = np.random.default_rng(0)
    long = np.exp2(rng.integers(-1, 2, (20, 1500)) * 1.0) * rng.choice([-1.0, 1.0], (20, 1500))
    long[::2, :750], long[::2, 750:] = long[::2, :750] * 1e-300, long[::2, 750:] * 1e300
    expected = [statistics(row, ["prod"])["prod"] for row in long]
    np.testing.assert_allclose(statistics_by_axis(long, ["prod"], 0)["prod"], expected, rtol=1e-9)
    assert np.isfinite(expected).all()
    rows = np.array([[np.inf, 0.0], [np.inf, -1.0], [np.nan, 1.0], [0.0, 1.0]])
    np.testing.assert_array_equal(statistics_by_axis(rows, ["prod"], 0)["prod"], [np.nan, -np.inf, np.nan, 0.0])


@pytest.mark.parametrize("of", EXTREMES.values(), ids=list(EXTREMES))
def test_numbers_at_the_ends_of_their_dtype(of: Extreme) -> None:
    rows = np.stack([of.values, np.arange(of.values.size).astype(of.values.dtype), np.zeros_like(of.values)])
    for array, axis in ((rows, 0), (rows.T, 1)):
        found = statistics_by_axis(array, (of.statistic,), axis)[of.statistic]
        assert found[0] == pytest.approx(of.expected, rel=1e-12, abs=0, nan_ok=True)
        assert found[1] == pytest.approx(statistics(rows[1], (of.statistic,))[of.statistic], nan_ok=True)


def test_counts_of_an_empty_slice_are_zero_and_the_rest_is_nan() -> None:
    found = statistics_by_axis(np.zeros((2, 0)), ["zero_count", "mean"], 0)
    np.testing.assert_array_equal(found["zero_count"], [0, 0])
    np.testing.assert_array_equal(found["mean"], [np.nan, np.nan])
    assert statistics_by_axis(np.zeros((2, 0)), ["mean"], 1)["mean"].shape == (0,)


def test_what_a_dtype_does_not_define_is_left_out() -> None:
    array = np.array([[3 + 4j, 0], [1j, 1j]])
    found = statistics_by_axis(array, ["min", "l2"], 0)
    assert list(found) == ["l2"]
    np.testing.assert_allclose(found["l2"], [5.0, math.sqrt(2)])
    assert statistics_by_axis(np.array(["a", "b"]), ["l2"], 0) == {}


@pytest.mark.parametrize(("axis", "expected"), [(0, 0), ("1", 1), (-1, -1), (np.int64(2), 2), (None, None), ("", None)])
def test_an_axis_is_an_integer_or_its_text(axis: Any, expected: int | None) -> None:
    assert parse_axis(axis) == expected


@pytest.mark.parametrize("axis", ["x", 1.5, True, "1.5", [0], np.True_])
def test_another_axis_is_refused(axis: Any) -> None:
    with pytest.raises(ConfigurationError, match="axis must be an integer or None, got"):
        parse_axis(axis)


def test_an_axis_is_counted_from_the_first() -> None:
    assert [axis_within(axis, (2, 3)) for axis in (-3, -2, -1, 0, 1, 2)] == [None, 0, 1, 0, 1, None]
    assert axis_within(0, ()) is None
    assert name_by_axis("gradient/fc.weight", "l2", 0) == "l2_by_0/gradient/fc.weight"
