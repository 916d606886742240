"""numkong is used where it is exact, and nothing depends on it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tensortrial.statistics.kernels import can_convert, numkong
from tensortrial.statistics.single import statistics

installed = pytest.importorskip("numkong")
FIVE = ("mean", "std", "min", "max", "l2")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Looks for numkong again, and forgets what a test found."""
    numkong.cache_clear()
    yield
    numkong.cache_clear()


def use(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Install a numkong with other functions."""
    known = {name: getattr(installed, name) for name in ("__version__", "astype", "from_pointer", "moments")}
    monkeypatch.setitem(sys.modules, "numkong", SimpleNamespace(**(known | changes)))


def of_float32(block: Any) -> tuple[float, float]:
    return float(block.sum()), float(np.square(block).sum())


def wrong_astype(source: Any, dtype: str, out: Any) -> None:
    installed.astype(source, dtype, out=out)
    out[1] = 0  # the least subnormal number


def without_nan(block: Any) -> tuple[float, float]:
    total, squares = installed.moments(np.nan_to_num(block))
    return total, squares


def test_numkong_is_exact_here() -> None:
    assert numkong() is installed


@pytest.mark.parametrize(
    "changes",
    [
        {"moments": of_float32},
        {"moments": without_nan},
        {"moments": None},
        {"astype": wrong_astype},
        {"from_pointer": lambda address, shape, dtype: None},
    ],
    ids=["sums of float32", "NaN", "no sums", "conversions", "another release"],
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
