"""numkong is used where it is exact, and nothing depends on it."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensortrial.statistics.kernels import can_convert, numkong, sums_of_float32
from tensortrial.statistics.single import statistics

installed = pytest.importorskip("numkong")
FIVE = ("mean", "std", "min", "max", "l2")
_NAMES = ("__version__", "astype", "from_pointer", "minmax", "moments")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Looks for numkong again, and forgets what a test found."""
    numkong.cache_clear()
    yield
    numkong.cache_clear()


def use(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Install a numkong with other functions, as its next release may have: there is one release."""
    known = {name: getattr(installed, name) for name in _NAMES}
    monkeypatch.setitem(sys.modules, "numkong", SimpleNamespace(**(known | changes)))


def of_float32(block: Any) -> tuple[float, float]:
    return float(block.sum()), float(np.square(block).sum())


def wrong_astype(source: Any, dtype: str, out: Any) -> None:
    installed.astype(source, dtype, out=out)
    out[1] = 0  # the least subnormal number


def without_nan(block: Any) -> tuple[float, float]:
    total, squares = installed.moments(np.nan_to_num(block))
    return total, squares


def without_the_last(block: Any) -> tuple[float, int, float, int]:
    found: tuple[float, int, float, int] = installed.minmax(block[:-1])
    return found


def nothing(block: Any) -> None:
    return None


def test_numkong_is_exact_here() -> None:
    assert numkong() is installed


@pytest.mark.parametrize(
    "changes",
    [
        {"moments": of_float32},
        {"moments": without_nan},
        {"moments": None},
        {"minmax": without_the_last},
        {"astype": wrong_astype},
        {"from_pointer": lambda address, shape, dtype: None},
    ],
    ids=["sums of float32", "NaN", "no sums", "extremes", "conversions", "another release"],
)
def test_a_numkong_that_is_not_exact_is_not_used(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    values = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    expected = statistics(values, FIVE)
    numkong.cache_clear()
    use(monkeypatch, **changes)
    with caplog.at_level(logging.WARNING):
        found = [statistics(values, FIVE) for _ in range(2)]
    assert numkong() is None
    assert [record.message.partition(" is not used")[1] for record in caplog.records] == [" is not used"]
    for each in found:
        assert each == pytest.approx(expected, rel=1e-12)


def test_numpy_finds_the_extremes_that_numkong_does_not_find(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    expected = statistics(values, FIVE)
    numkong.cache_clear()
    use(monkeypatch, minmax=nothing)
    assert statistics(values, FIVE) == expected
    assert numkong() is sys.modules["numkong"]


@pytest.mark.parametrize("value", [3.4028235e38, -3.4028235e38, 1e-45, -0.0, np.inf, -np.inf])
@pytest.mark.parametrize("size", [2, 7, 8, 9, 300_000])
def test_equal_numbers_have_their_extremes(value: float, size: int) -> None:
    values = np.full(size, value, np.float32)
    assert statistics(values, ("min", "max", "l2")) == {
        "min": values[0],
        "max": values[0],
        "l2": pytest.approx(abs(float(values[0])) * size**0.5, rel=1e-12),
    }


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    size=st.integers(2, 300) | st.sampled_from([65_536, 131_071, 131_072, 131_073, 262_149]),
    seed=st.integers(0, 1000),
    dtype=st.sampled_from(["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]),
    has_nan=st.booleans(),
)
def test_extremes_of_any_bits_are_those_of_numpy(size: int, seed: int, dtype: str, has_nan: bool) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    bits = np.random.default_rng(seed).integers(0, 256, size * kind.itemsize, np.uint8)
    values = bits.view(kind)
    with np.errstate(all="ignore"):
        if not has_nan:
            values[~np.isfinite(values.astype(np.float64))] = 1
        wide = values.astype(np.float64)
        magnitudes = np.abs(wide)
        extremes = [wide.min(), wide.max(), magnitudes.min(), magnitudes.max()]
        sums = [wide.sum(), magnitudes.sum(), np.sqrt(np.square(wide).sum())]
    found = statistics(values, ("min", "max", "abs_min", "abs_max", "sum", "l1", "l2", "nan_count"))
    np.testing.assert_array_equal(list(found.values())[:4], extremes)
    scale = 1e-12 * sums[1] if np.isfinite(sums[1]) else 0.0
    assert [found["sum"], found["l1"], found["l2"]] == pytest.approx(sums, rel=1e-12, abs=scale, nan_ok=True)
    assert found["nan_count"] == np.isnan(wide).sum()


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_values_that_are_not_aligned_are_reduced_as_well(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    assert can_convert(dtype)
    values = np.linspace(-3, 3, 9999).astype(dtype)
    memory = np.zeros(values.nbytes + 1, np.uint8)
    odd = memory[1:].view(dtype)
    odd[:] = values
    assert statistics(odd, FIVE) == statistics(values, FIVE)
    single = np.frombuffer(b"\0" + values.astype(np.float32).tobytes(), np.uint8)[1:].view(np.float32)
    assert statistics(single, FIVE) == pytest.approx(statistics(values, FIVE), rel=1e-12)


def test_other_threads_run_while_numkong_adds_up_a_large_array() -> None:
    block = np.random.default_rng(0).standard_normal(1 << 24).astype(np.float32)
    sums_of_float32(block[: 1 << 16])  # finds numkong, which takes imports and other calls that release the lock
    begun, ran = threading.Event(), threading.Event()

    def run() -> None:
        begun.wait()
        ran.set()

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=run)
    thread.start()
    try:
        sys.setswitchinterval(60)  # so that Python passes the lock on only where this thread releases it
        begun.set()
        found = [sums_of_float32(block) for _ in range(100) if not ran.is_set()]
        assert ran.is_set()
    finally:
        sys.setswitchinterval(interval)
        thread.join()
    wide = block.astype(np.float64)
    assert found[0] == pytest.approx((wide.sum(), np.square(wide).sum()), rel=1e-12)


@pytest.mark.parametrize("size", [32_767, 32_768, 32_769, 131_072])
def test_sums_of_an_array_of_any_size_are_those_of_float64(size: int) -> None:
    block = np.random.default_rng(size).standard_normal(size).astype(np.float32) + np.float32(3)
    wide = block.astype(np.float64)
    assert sums_of_float32(block) == pytest.approx((wide.sum(), np.square(wide).sum()), rel=1e-13)
    assert sums_of_float32(block[1:]) == pytest.approx((wide[1:].sum(), np.square(wide[1:]).sum()), rel=1e-13)
    block[size // 2] = np.nan
    assert np.isnan(sums_of_float32(block)).all()
