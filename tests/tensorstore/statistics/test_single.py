"""Every statistic, on every dtype, against the plain formula in long double."""

from __future__ import annotations

import functools
import math
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.extreme_numbers import EXTREMES, Extreme
from tensortrial.errors import ConfigurationError
from tensortrial.statistics import sums
from tensortrial.statistics.definitions import COMPLEX_STATISTICS, COUNTS, REDUCTIONS, STATISTICS, parse_statistic
from tensortrial.statistics.histogram import histogram
from tensortrial.statistics.kernels import numkong
from tensortrial.statistics.single import statistic, statistics

QUICK = settings(max_examples=60, deadline=None, derandomize=True)

FLOATS = ["float16", "float32", "float64", "longdouble", ">f4", "<f8"]
INTEGERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
SMALL = [
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3b11fnuz",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float8_e3m4",
    "float8_e4m3",
    "float4_e2m1fn",
    "int4",
    "uint4",
    "int2",
    "uint2",
]
DTYPES = FLOATS + INTEGERS + [name for name in SMALL if hasattr(ml_dtypes, name)]
PACKAGES = ["numpy", "numkong"]
# What numkong computes, and what is near it. It changes nothing for the others.
BY_NUMKONG = [*FLOATS, "bfloat16", "float8_e4m3fn", "float8_e5m2"]


@pytest.fixture(scope="module", autouse=True, params=PACKAGES)
def package(request: pytest.FixtureRequest) -> Iterator[None]:
    """Computes with numkong, and as if it were not installed."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "numpy":
            patch.setitem(sys.modules, "numkong", None)
        else:
            pytest.importorskip("numkong")
        numkong.cache_clear()
        assert (numkong() is None) == (request.param == "numpy")
        yield
    numkong.cache_clear()


def _dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name) if name in SMALL else name)


def reference(array: np.ndarray[Any, Any]) -> dict[str, float]:
    """The formulas as one would write them down, in long double, with no care for speed."""
    with np.errstate(all="ignore"):
        x = array.astype(np.float64).astype(np.longdouble).ravel()
        result = _reductions(x) | {"abs_" + name: value for name, value in _reductions(np.abs(x)).items()}
    result |= {"nan_count": np.isnan(x).sum(), "inf_count": np.isinf(x).sum(), "zero_count": (x == 0).sum()}
    result |= _moments(x) | _limited(array, x)
    return {name: float(value) for name, value in result.items()}


def _moments(x: np.ndarray[Any, Any]) -> dict[str, Any]:
    with np.errstate(all="ignore"):
        rms = np.sqrt((x * x).mean()) if x.size else math.nan
        if x.size < 2 or not np.ptp(x) > 0 or not np.isfinite(x).all():
            return {"rms": rms, "skewness": math.nan, "kurtosis": math.nan}
        z = (x - x.mean()) / x.std()
        return {"rms": rms, "skewness": (z**3).mean(), "kurtosis": (z**4).mean()}


def _limited(array: np.ndarray[Any, Any], x: np.ndarray[Any, Any]) -> dict[str, Any]:
    dtype = np.dtype(np.float64) if array.dtype == np.longdouble else array.dtype
    if dtype.kind == "b":
        return {"subnormal_count": 0, "saturated_count": 0}
    try:
        known = ml_dtypes.finfo(dtype)
    except ValueError:
        whole = ml_dtypes.iinfo(dtype)
        return {
            "subnormal_count": 0,
            "saturated_count": sum(number in {whole.max, whole.min or whole.max} for number in array.ravel().tolist()),
        }
    return {
        "subnormal_count": ((x != 0) & (np.abs(x) < float(known.smallest_normal))).sum(),
        "saturated_count": ((x == float(known.max)) | (x == float(known.min))).sum(),
    }


def _reductions(x: np.ndarray[Any, Any]) -> dict[str, Any]:
    if not x.size:
        return dict.fromkeys(REDUCTIONS, math.nan)
    # x.max() - x.max() rather than 0, so that an infinity gives NaN.
    variance = np.mean((x - x.mean()) ** 2) if np.ptp(x) else x.max() - x.max()
    return {
        "min": x.min(),
        "max": x.max(),
        "mean": x.mean(),
        "median": np.median(x),
        "std": np.sqrt(variance),
        "variance": variance,
        "sum": x.sum(),
        "prod": x.prod(),
        "l1": np.abs(x).sum(),
        "l2": np.sqrt((x * x).sum()),
    }


def check(array: np.ndarray[Any, Any], rtol: float = 1e-9, expected: dict[str, float] | None = None) -> None:
    """Compare all statistics, each on its natural scale: a sum that cancels is as exact as the sum of magnitudes."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = statistics(array, STATISTICS)
    expected = expected or reference(array)
    assert tuple(found) == STATISTICS
    size = max(array.size, 1)
    scale = {
        "sum": expected["l1"],
        "mean": expected["l1"] / size,
        "variance": expected["variance"] + (1e-6 * expected["abs_mean"]) ** 2,
        "std": expected["std"] + 1e-6 * expected["abs_mean"],
        "abs_variance": expected["abs_variance"] + (1e-6 * expected["abs_mean"]) ** 2,
        "abs_std": expected["abs_std"] + 1e-6 * expected["abs_mean"],
    }
    exact = expected["std"] > 1e-6 * expected["rms"] and expected["l2"] < 1e70  # the shape of less is rounding
    for name in STATISTICS:
        assert type(found[name]) is float
        if name in ("skewness", "kurtosis"):
            if exact:
                close(found[name], expected[name], expected["kurtosis"], 1e-7, name)
            continue
        close(found[name], expected[name], scale.get(name, abs(expected[name])), rtol, name)
        close(statistics(array, (name,))[name], found[name], scale.get(name, abs(expected[name])), rtol, name)


def close(found: float, expected: float, scale: float, rtol: float, name: str) -> None:
    if math.isfinite(expected):
        assert abs(found - expected) <= rtol * scale + 1e-300, f"{name}: {found} for {expected}"
    else:
        assert repr(found) == repr(expected), f"{name}: {found} for {expected}"


def normal(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize(
    ("package", "name"),
    [(package, name) for package in PACKAGES for name in (DTYPES if package == "numpy" else BY_NUMKONG)],
    indirect=["package"],
)
@QUICK
@given(data=st.data())
def test_every_dtype(name: str, data: st.DataObject) -> None:
    size = data.draw(st.integers(0, 40))
    width = _dtype(name).itemsize
    # Any bytes at all: every value of the small kinds, NaN and the infinities among them.
    if name != "longdouble" and "f" in name:
        values = np.frombuffer(data.draw(st.binary(min_size=size * width, max_size=size * width)), np.uint8)
        values = values.view(_dtype(name))
        if width == 8:  # whose squares may leave the range of float64
            inside = (np.abs(values) < 1e60) & (np.abs(values) > 1e-60)
            values = np.where(inside, values, 3).astype(values.dtype)
        check(values)
    else:
        values = np.array(data.draw(st.lists(st.integers(0, 1), min_size=size, max_size=size)), np.int8)
        check(values.astype(_dtype(name)))


@pytest.mark.parametrize("name", INTEGERS[1:])
def test_the_whole_range_of_integers(name: str) -> None:
    info = np.iinfo(name)
    check(np.array([info.min, info.max, 3, info.max - 1], name))


@pytest.mark.parametrize("of", EXTREMES.values(), ids=list(EXTREMES))
def test_numbers_at_the_ends_of_their_dtype(of: Extreme) -> None:
    assert statistic(of.values, of.statistic) == pytest.approx(of.expected, rel=1e-12, abs=0, nan_ok=True)
    many = np.tile(of.values, 70_000) if of.statistic not in ("l2", "saturated_count") else of.values  # many blocks
    assert statistic(many, of.statistic) == pytest.approx(of.expected, rel=1e-9, abs=0, nan_ok=True)


def test_the_only_integer_next_to_the_end_of_64_bits_is_not_saturated() -> None:
    assert statistic(np.array([2**63 - 2]), "saturated_count") == 0
    assert statistic(np.array([-(2**63)]), "saturated_count") == 1


def test_the_least_number_of_a_dtype_without_a_sign_is_saturated() -> None:
    least = np.array([2.0**-127, 1.0]).astype(ml_dtypes.float8_e8m0fnu)
    assert statistic(least, "saturated_count") == statistic(least[:1], "saturated_count") == 1


def test_std_of_complex_numbers_whose_squares_overflow() -> None:
    assert statistic(np.array([3e200 + 4e200j, -3e200 - 4e200j]), "std") == pytest.approx(5e200)


SPECIAL = st.sampled_from([0.0, -0.0, 1.0, -2.5, 1e30, -1e-30, math.inf, -math.inf, math.nan])


@QUICK
@given(values=st.lists(SPECIAL, max_size=12))
def test_zeros_infinities_and_nan(values: list[float]) -> None:
    check(np.array(values, np.float32))
    check(np.array(values, np.float64))


@QUICK
@given(
    size=st.sampled_from([1, 2, 3, 1023, 1025, 8191, 8193, 16383, 16384, 16385, 32769, 50000, 65536, 65537, 200_000]),
    mean=st.sampled_from([0.0, 1.0, -1e6, 1e12]),
    scale=st.sampled_from([1e-30, 1e-3, 1.0, 1e8, 1e30]),
    dtype=st.sampled_from(["float32", "float64", "float16", "bfloat16", "int32"]),
)
def test_statistics_do_not_depend_on_the_borders_of_blocks(size: int, mean: float, scale: float, dtype: str) -> None:
    limit = 6e4 if dtype == "float16" else 2e9 if dtype == "int32" else math.inf
    check(np.clip(normal(size) * scale + mean, -limit, limit).astype(_dtype(dtype)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_small_spread_around_a_large_mean(dtype: str) -> None:
    array = (normal(100_000) + 1e6).astype(dtype)
    assert statistic(array, "variance") == pytest.approx(np.var(array, dtype=np.float64), rel=1e-9)
    tiny = np.array([1e8, 1e8 + 1e-6, 1e8 - 1e-6] * 7000)
    assert statistic(tiny, "variance") == pytest.approx(float(np.var(tiny.astype(np.longdouble))), rel=1e-6)


@pytest.mark.parametrize("size", [2, 1000, 20_000])
def test_a_constant_has_no_spread(size: int) -> None:
    assert statistic(np.full(size, 0.1, np.float32), "std") == pytest.approx(0.0, abs=1e-15)
    assert statistic(np.full(size, 1e200), "variance") == pytest.approx(0.0, abs=1e380)


@pytest.mark.parametrize("scale", [1e-45, 1e-30, 1e30, 3e38])
def test_l2_at_the_ends_of_float32(scale: float) -> None:
    array = np.full(30_000, scale, np.float32)
    assert statistic(array, "l2") == pytest.approx(float(array[0]) * math.sqrt(30_000), rel=1e-12)


@pytest.mark.parametrize("position", [0, 16384, 39_999])
def test_one_bad_value_in_many(position: int) -> None:
    for value in (math.nan, math.inf, -math.inf, 0.0):
        array = (1 + normal(40_000) * 1e-6).astype(np.float32)
        array[position] = value
        check(array)


PRODUCTS = {
    "weights": normal(20_000) * 0.02,
    "too large": normal(20_000) * 10,
    "too small and then too large": np.concatenate([np.full(20_000, 0.5), np.full(20_010, 2.0)]),
    "huge and tiny by turns": np.tile([1e250, 1e-250, 1e200, 1e-200], 5000),
    "all near one": 1 + normal(30_001) * 1e-3,
    "a late zero": np.append(np.full(30_000, 3.0), 0.0),
    "rectified": np.maximum(normal(20_000), 0) * 50,
    "six": np.array([1.0, 2.0, -3.0]),
}


@pytest.mark.parametrize("values", PRODUCTS.values(), ids=PRODUCTS)
def test_the_product_never_overflows_half_way(values: np.ndarray[Any, Any]) -> None:
    with np.errstate(divide="ignore"):
        logarithm = np.log2(np.abs(values.astype(np.longdouble))).sum()
    sign = -1.0 if np.count_nonzero(values < 0) % 2 else 1.0
    with np.errstate(over="ignore", under="ignore"):
        expected = sign * float(np.exp2(logarithm))
    assert statistic(values, "prod") == pytest.approx(expected, rel=1e-9)
    assert statistic(values, "abs_prod") == pytest.approx(abs(expected), rel=1e-9)


@functools.cache
def _layouts(dtype: str = "float32") -> dict[str, np.ndarray[Any, Any]]:
    base = normal(60, 40, 30).astype(_dtype(dtype))
    return {
        "fortran": np.asfortranarray(base),
        "permuted": base.transpose(1, 2, 0),
        "strided": base[::2, :, 1::3],
        "reversed": base[::-1, :, ::-1],
        "column": base[:, 3, 7],
        "long column": np.resize(base, (70_000, 2))[:, 1],
        "reversed column": base[::-1, 3, 7],
        "0-d": base[0, 0, 0, ...],
        "broadcast": np.broadcast_to(base[:, :1, :1], (60, 40, 30)),
        "read-only": np.frombuffer(base.tobytes(), base.dtype),
    }


@functools.cache
def _reference_of(layout: str, dtype: str) -> dict[str, float]:
    return reference(_layouts(dtype)[layout])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn", "int8"])
@pytest.mark.parametrize("layout", _layouts())
def test_every_memory_layout(layout: str, dtype: str) -> None:
    array = _layouts(dtype)[layout]
    before = array.copy()
    check(array, expected=_reference_of(layout, dtype))
    assert np.array_equal(array, before)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("value", [1e-45, 1e-30, 3e38, math.nan, math.inf])
def test_statistics_do_not_depend_on_the_error_settings_of_numpy(dtype: str, value: float) -> None:
    with np.errstate(all="ignore"):
        array = np.full(9000, value).astype(_dtype(dtype))
    array[::7] = 0.5
    expected = statistics(array, STATISTICS)
    for names in (STATISTICS, *((name,) for name in STATISTICS), ("min", "max", "mean", "std", "prod", "l1", "l2")):
        with np.errstate(all="raise"):
            found = statistics(array, names)
        assert found == pytest.approx({name: expected[name] for name in names}, rel=1e-9, nan_ok=True)


def test_a_subclass_is_read_as_an_array() -> None:
    masked = np.ma.masked_array([[1.0, 2.0], [3.0, 4.0]], mask=[[False, True], [False, False]])
    assert statistic(masked, "l2") == pytest.approx(math.sqrt(30))


def test_the_shape_of_a_distribution_is_that_of_its_formulas() -> None:
    values = np.random.default_rng(0).gamma(2.0, size=300_001)  # more than one block
    z = (values - values.mean()) / values.std()
    found = statistics(values.astype(np.float32), ("skewness", "kurtosis"))
    assert found == pytest.approx({"skewness": (z**3).mean(), "kurtosis": (z**4).mean()}, rel=1e-6)
    assert statistic(np.array([0.0] * 99 + [1e3]), "kurtosis") == pytest.approx((1 - 3 * 0.0099) / 0.0099)
    far = statistics(values + 1e6, ("skewness", "kurtosis"))
    assert far == pytest.approx(found, rel=1e-5)
    assert all(map(math.isnan, statistics(np.full(1000, 0.1), ("skewness", "kurtosis")).values()))


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16", "float32"])
def test_a_number_beyond_the_range_of_a_low_precision_is_counted(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    known = ml_dtypes.finfo(dtype)
    values = [0.0, 1.0, float(known.max), -float(known.max), float(known.smallest_normal)]
    array = np.array([*values, float(known.smallest_subnormal), -float(known.smallest_subnormal), math.nan], dtype)
    names = ("saturated_count", "subnormal_count", "nan_count")
    assert statistics(array, names) == {"saturated_count": 2, "subnormal_count": 2, "nan_count": 1}
    assert [statistic(array[[each]], "saturated_count") for each in (1, 2, 3)] == [0, 1, 1]
    assert [statistic(array[[each]], "subnormal_count") for each in (0, 4, 5)] == [0, 0, 1]


@pytest.mark.parametrize("name", ["complex64", "complex128"])
@pytest.mark.parametrize("shape", [(), (1,), (2,), (999,)], ids=str)
def test_complex(name: str, shape: tuple[int, ...]) -> None:
    size = math.prod(shape)
    array = (normal(size) + 1j * normal(size, seed=1)).astype(name).reshape(shape)
    found = statistics(array, STATISTICS)
    assert set(found) == COMPLEX_STATISTICS
    magnitudes = reference(np.abs(array.astype(np.complex128)))
    for key in set(found) - {"std", "variance"}:
        assert found[key] == pytest.approx(magnitudes[key.removeprefix("abs_")], rel=1e-9)
    assert found["variance"] == pytest.approx(np.var(array.astype(np.complex128)), rel=1e-9)
    assert found["std"] == pytest.approx(np.std(array.astype(np.complex128)), rel=1e-9)


def test_complex_with_bad_parts() -> None:
    array = np.array([complex(math.inf, math.nan), complex(1, -math.inf), 0, 3 + 4j])
    found = statistics(array, STATISTICS)
    assert (found["nan_count"], found["inf_count"], found["zero_count"]) == (1, 1, 1)
    assert all(math.isnan(found[name]) for name in set(found) - set(COUNTS))
    found = statistics(array[1:], STATISTICS)
    assert found["abs_max"] == found["l1"] == math.inf
    assert math.isnan(found["std"])


@pytest.mark.parametrize("name", ["complex32", "bcomplex32"])
def test_small_complex_kinds(name: str) -> None:
    if not hasattr(ml_dtypes, name):
        pytest.skip("an older ml_dtypes")
    array = np.array([3 + 4j, 0], np.complex64).astype(getattr(ml_dtypes, name))
    assert statistics(array, ("l2", "sum")) == {"l2": 5.0}


UNDEFINED = [
    np.array(["a", "b"]),
    np.array([b"a"]),
    np.array(["2020-01-01"], "M8[D]"),
    np.array([3], "m8[s]"),
    np.zeros(2, [("x", "f4")]),
    np.zeros(2, "V3"),
    np.array([None, 1]),
]


@pytest.mark.parametrize("array", UNDEFINED, ids=lambda array: str(array.dtype))
def test_other_dtypes_have_no_statistics(array: np.ndarray[Any, Any]) -> None:
    assert statistics(array, STATISTICS) == {}
    assert statistic(array, "sum") is None
    assert histogram(array) is None


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
def test_empty(shape: tuple[int, ...]) -> None:
    found = statistics(np.zeros(shape, np.float32), STATISTICS)
    assert {name for name, value in found.items() if value == 0} == set(COUNTS)
    assert all(math.isnan(found[name]) for name in set(STATISTICS) - set(COUNTS))
    assert set(statistics(np.zeros(shape, np.complex64), STATISTICS)) == COMPLEX_STATISTICS


def test_only_the_requested_statistics_are_returned_in_their_order() -> None:
    assert list(statistics(np.ones(3), ["l2_norm", "min", "l2", "abs_l1_norm"])) == ["l2", "min", "abs_l1"]
    assert statistics(np.ones(3), iter(())) == {}


def test_names() -> None:
    assert len(STATISTICS) == len(set(STATISTICS)) == 28
    assert [parse_statistic(name) for name in STATISTICS] == list(STATISTICS)
    assert parse_statistic("abs_l2_norm") == "abs_l2"
    for wrong, right in (("medain", "median"), ("abs_men", "abs_mean"), ("nans", "nan_count"), ("", "min")):
        with pytest.raises(ConfigurationError, match=right if wrong else "did you mean"):
            parse_statistic(wrong)
    with pytest.raises(ConfigurationError, match="did you mean 'variance'"):
        statistics(np.ones(3), ("varianse",))


def test_blocks_stay_below_the_threads_of_blas() -> None:
    assert sums.PIECE < 9216, "OpenBLAS uses threads from 9216 elements of a matrix on, and from 10001 of a vector"


def test_threads_share_nothing() -> None:
    arrays = [normal(50_000, seed=seed).astype(np.float32) for seed in range(4)]
    expected = [statistics(array, STATISTICS) for array in arrays]
    found: list[Any] = [None] * 4

    def work(i: int) -> None:
        for _ in range(5):
            found[i] = statistics(arrays[i], STATISTICS)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected


@QUICK
@given(
    values=st.lists(st.one_of(SPECIAL, st.floats(-1e3, 1e3, width=32)), min_size=1, max_size=50),
    bins=st.integers(1, 70),
    dtype=st.sampled_from(["float32", "float64", "float16"]),
)
def test_histogram_is_numpys(values: list[float], bins: int, dtype: str) -> None:
    with np.errstate(over="ignore"):
        array = np.array(values).astype(dtype)
    finite = array[np.isfinite(array)].astype(np.float64)
    found = histogram(array, bins)
    if not finite.size:
        assert found is None
        return
    assert found is not None
    edges, counts = found
    assert len(edges) == bins + 1
    assert edges == sorted(edges)
    assert sum(counts) == finite.size
    assert edges[0] <= finite.min()
    assert edges[-1] >= finite.max()
    if np.ptp(finite) > 1e-9 * np.abs(finite).max():
        expected, at = np.histogram(finite, bins)
        assert edges == at.tolist()
        assert counts == expected.tolist()


def test_histogram_of_many() -> None:
    array = normal(70_000).astype(np.float32)
    array[12_345] = math.inf
    edges, counts = histogram(array) or ([], [])
    expected, at = np.histogram(array[np.isfinite(array)].astype(np.float64), 64)
    assert (edges, counts) == (at.tolist(), expected.tolist())
    strided = histogram(array.reshape(700, 100)[:, ::2])
    assert strided is not None
    assert sum(strided[1]) == 35_000


@pytest.mark.parametrize(
    "values",
    [
        [5.0],
        [1e300, 1e300],
        [-1.7e308, 1.7e308, 3.0],
        [1.0, 1.0 + 2**-52],
        [1 / 3, 1 - 2 / 3, 1 / 3],
        [-0.1, -0.1 - 2**-50],
        [1.764e18, 1.764e18 + 256],
        [1.797e308],
        [1.797e308, math.nextafter(1.797e308, 0)],
        [5e-324, 0.0],
    ],
)
@pytest.mark.parametrize("bins", [8, 64])
def test_histogram_of_awkward_ranges(values: list[float], bins: int) -> None:
    edges, counts = histogram(np.array(values), bins) or ([], [])
    assert sum(counts) == len(values)
    assert np.isfinite(edges).all()
    assert (np.diff(np.array(edges) / 2) >= 0).all()
    assert len(set(edges)) == bins + 1
    assert edges[0] <= min(values) <= max(values) <= edges[-1]


def test_histogram_of_other_dtypes() -> None:
    assert histogram(np.array([True, False, True]), 2) == ([0.0, 0.5, 1.0], [1, 2])
    assert histogram(np.array([1, 2, 3, 4]), 3) == ([1.0, 2.0, 3.0, 4.0], [1, 1, 2])
    assert histogram(np.zeros(0)) is None
    assert histogram(np.array([math.nan, math.inf])) is None
    assert histogram(np.array([1j])) is None
    with pytest.raises(ConfigurationError, match="at least one bin"):
        histogram(np.ones(2), 0)
