"""A sketch has the rounded quantiles of its elements, to 1/128, and sketches of parts add up to that of the whole."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensortrial.errors import ConfigurationError
from tensortrial.statistics.sketch import Sketch, merged, quantile, sketch_of

QUICK = settings(max_examples=200, deadline=None, derandomize=True)
NUMBERS = st.floats() | st.floats(-10, 10) | st.sampled_from([0.0, -0.0, 1e-310, math.inf, -math.inf, math.nan])
QS = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
DTYPES = [
    "float64",
    "float32",
    "float16",
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    "int8",
    "uint16",
    "int64",
    "bool",
]


def rounded(array: Any) -> Any:
    """Return the elements with 7 significant binary digits, by arithmetic instead of bits."""
    with np.errstate(invalid="ignore"):
        wide = np.asarray(array).astype(np.float64).reshape(-1)
    mantissa, exponent = np.frexp(np.abs(wide))
    # Below the least normal number, 2^-1022, the digits end at a fixed place.
    digits = np.where(exponent < -1021, 7 - (-1021 - exponent), 7)
    with np.errstate(all="ignore"):
        near = np.ldexp(np.floor(np.ldexp(mantissa, digits) + 0.5), exponent - digits)
    near = np.where(np.isinf(near) & np.isfinite(wide), 127 * 2.0**1017, near)
    return np.where(np.isfinite(wide), np.copysign(near, wide), wide) + 0.0


def check(array: Any) -> Sketch:
    sketch = sketch_of(array)
    assert sketch is not None
    values, counts = np.unique(rounded(array), return_counts=True)
    np.testing.assert_array_equal(sketch.values, values)
    np.testing.assert_array_equal(sketch.counts, counts)
    return sketch


@QUICK
@given(values=st.lists(NUMBERS.filter(lambda x: x == x), min_size=1, max_size=50))
def test_a_quantile_is_within_a_hundredth_of_numpys(values: list[float]) -> None:
    sketch = check(np.array(values))
    for q in QS:
        exact, found = float(np.quantile(values, q, method="inverted_cdf")), quantile(sketch, q)
        if math.isinf(exact) or exact == 0:
            assert found == exact
        else:
            assert abs(found - exact) <= max(abs(exact) / 128, 2.0**-1029)


@QUICK
@given(values=st.lists(NUMBERS, max_size=50), number=st.integers(1, 3))
def test_nan_is_counted_apart_and_propagates(values: list[float], number: int) -> None:
    sketch = check(np.array([*values, *[math.nan] * number]))
    assert math.isnan(sketch.values[-1])
    assert sketch.counts[-1] == number + sum(math.isnan(value) for value in values)
    assert all(math.isnan(quantile(sketch, q)) for q in QS)


@QUICK
@given(values=st.lists(NUMBERS, max_size=60), cut=st.integers(0, 60), dtype=st.sampled_from(DTYPES))
def test_sketches_of_parts_add_up_to_that_of_the_whole(values: list[float], cut: int, dtype: Any) -> None:
    array = np.array(values, np.float64)
    if np.dtype(dtype).kind in "iub":
        array = np.nan_to_num(array).clip(0, 100)
    with np.errstate(all="ignore"):
        whole = array.astype(dtype)
    parts = [sketch_of(part) for part in (whole[:cut], whole[cut:])]
    found, expected = merged(part for part in parts if part is not None), check(whole)
    assert found.values.tobytes() == expected.values.tobytes()
    assert found.counts.tobytes() == expected.counts.tobytes()
    assert found.counts.sum() == len(values)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1e-42, 1e-5, 1.0, 100.0, 1e38])
def test_large_arrays_of_each_dtype_are_counted_exactly(dtype: Any, scale: float) -> None:
    rng = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        array = (rng.standard_normal((130, 200)) * scale).astype(dtype)
    if array.dtype.kind not in "iub":
        array[::7] = 0.0
        array[0, :3] = [math.nan, -0.0, math.inf if dtype is not ml_dtypes.float8_e4m3fn else 1.0]
    whole = check(array)
    # Also in another order of memory, and without one.
    for other in (array.T, array[:, ::2], array[:, 1::2]):
        check(other)
    found = merged([check(array[:, ::2]), check(array[:, 1::2])])
    assert found.values.tobytes() == whole.values.tobytes()
    assert found.counts.tobytes() == whole.counts.tobytes()


def test_nan_with_any_payload_is_counted_as_nan() -> None:
    array = np.zeros(50_000, np.float32)
    array.view(np.uint32)[:3] = [0x7F800001, 0xFFC00000, 0xFF800001]
    array[3], array[4] = math.inf, -math.inf
    sketch = check(array)
    assert sketch.values.tolist()[:3] == [-math.inf, 0.0, math.inf]
    assert sketch.counts.tolist() == [1, 49_995, 1, 3]
    assert math.isnan(quantile(sketch, 0.5))


def test_finite_numbers_stay_finite() -> None:
    greatest = np.finfo(np.float64).max
    sketch = sketch_of(np.array([greatest, -greatest, math.inf]))
    assert sketch is not None
    assert sketch.values.tolist() == [-127 * 2.0**1017, 127 * 2.0**1017, math.inf]


def test_numbers_of_few_digits_are_exact() -> None:
    array = np.array([*range(-127, 128), *(2.0**-k for k in range(100))])
    sketch = sketch_of(array)
    assert sketch is not None
    assert sketch.values.tolist() == np.unique(array).tolist()


def test_an_empty_array_has_no_quantiles() -> None:
    sketch = sketch_of(np.empty((0, 3)))
    assert sketch is not None
    assert len(sketch.values) == 0
    assert math.isnan(quantile(sketch, 0.5))
    assert math.isnan(quantile(merged([]), 0.5))


def test_what_has_no_order_has_no_sketch() -> None:
    assert sketch_of(np.array([1j])) is None
    assert sketch_of(np.array(["a"])) is None


@pytest.mark.parametrize("q", [-0.1, 1.1, math.nan, "0.5", None, [0.5]])
def test_a_quantile_is_from_zero_to_one(q: Any) -> None:
    sketch = sketch_of(np.ones(3))
    assert sketch is not None
    with pytest.raises(ConfigurationError, match="q must be a number from 0 to 1, got"):
        quantile(sketch, q)
