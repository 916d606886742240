"""Many small tensors at once have the statistics that each has alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensortrial
from support.extreme_numbers import EXTREMES, Extreme
from support.runs import Job
from tensortrial.statistics.batched import can_join, statistics_of_many
from tensortrial.statistics.definitions import COUNTS
from tensortrial.statistics.single import statistics

NINE = ("min", "max", "mean", "std", "variance", "sum", "prod", "l1", "l2")
NUMBERS = st.floats(width=32) | st.floats(-2, 2, width=32) | st.sampled_from([0.0, -0.0, 1.0])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    values=st.lists(st.lists(NUMBERS, min_size=2, max_size=20), min_size=1, max_size=8),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
    finite=st.booleans(),
    shift=st.sampled_from([0.0, 1e6]),
)
def test_statistics_of_many_arrays_are_those_of_each(
    values: list[list[float]], dtype: str, finite: bool, shift: float
) -> None:
    with np.errstate(all="ignore"):
        arrays = [(np.array(each) + shift).astype(dtype) for each in values]
    if finite:
        arrays = [np.nan_to_num(array, nan=1.0, posinf=2.0, neginf=-2.0) for array in arrays]
    check(arrays, (*NINE, "abs_mean", "abs_max"))


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1.0, 1e30, 1e200])
def test_of_weights(scale: float) -> None:
    rng = np.random.default_rng(0)
    check([rng.standard_normal(shape) * scale for shape in [(4096,), (3, 3), (16, 2, 2), (2,), (64, 64)]], NINE)
    check([rng.standard_normal((16, 3)).T * scale + 5, np.full(9, 0.1), np.arange(1.0, 9.0)], NINE)


@pytest.mark.parametrize("of", [each for each in EXTREMES.values() if each.values.dtype.kind == "f"])
def test_numbers_at_the_ends_of_float64(of: Extreme) -> None:
    ordinary = np.array([1.0, 2.0, 3.0])
    found = statistics_of_many([ordinary, of.values, np.zeros(3)], (of.statistic,))
    assert found[1][of.statistic] == pytest.approx(of.expected, rel=1e-12, abs=0, nan_ok=True)
    assert found[0] == pytest.approx(statistics(ordinary, (of.statistic,)))


@pytest.mark.parametrize("size", [300, 512])
def test_statistics_of_several_groups_are_those_of_each(size: int) -> None:
    rng = np.random.default_rng(0)
    check([rng.standard_normal(size).astype("f4") for _ in range(40_000 // size)], NINE)
    check([rng.standard_normal(size + number % 3).astype("f8") + 1 for number in range(99)][1:], NINE)


def check(arrays: list[np.ndarray[Any, Any]], names: tuple[str, ...]) -> None:
    assert all(map(can_join, arrays))
    for array, found in zip(arrays, statistics_of_many(arrays, names), strict=True):
        expected = statistics(array, names)
        assert list(found) == list(expected)
        size = float(np.abs(array.astype(np.float64)).max())
        for name, value in expected.items():
            # A sum is no more exact than its largest terms; a variance of equal numbers may be their rounding.
            near = {"sum": 1e-14 * size * array.size, "mean": 1e-14 * size, "std": 1e-9 * size}.get(name, 0.0)
            near = 1e-18 * size * size if name == "variance" else near
            assert found[name] == pytest.approx(value, rel=1e-9, abs=near, nan_ok=True), name


def test_the_later_statistics_of_many_arrays_are_those_of_each() -> None:
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal(4000).astype("f4"),
        rng.gamma(2.0, size=100).astype("f2") + np.float16(300),
        np.array([0.0, 1e-7, -6e-8, 65504.0, -65504.0], "f2"),
        np.full(7, 0.1),
        np.array([0.0, 1e-310, 3e-320, np.finfo("f8").tiny]),
    ]
    names = ("rms", "skewness", "kurtosis", *COUNTS)
    for array, found in zip(arrays, statistics_of_many(arrays, names), strict=True):
        assert found == pytest.approx(statistics(array, names), rel=1e-9, nan_ok=True)
    found = statistics_of_many(arrays, names)
    assert [each["subnormal_count"] for each in found] == [0, 0, 2, 0, 2]
    assert [each["saturated_count"] for each in found] == [0, 0, 2, 0, 0]
    with_nan = [*arrays, np.array([1.0, np.nan, -np.inf, np.inf])]
    assert [each["nan_count"] for each in statistics_of_many(with_nan, names)] == [0, 0, 0, 0, 0, 1]
    assert [each["inf_count"] for each in statistics_of_many(with_nan, names)] == [0, 0, 0, 0, 0, 2]


def test_a_writer_saves_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    steps = [{f"w{n}": rng.standard_normal((n % 20 + 1, 3)).astype("f4") for n in range(150)} for _ in range(3)]
    for values in steps:
        values |= {"large": np.ones((100, 100)), "whole": np.arange(7), "one": np.array([2.0])}
    with Job(tmp_path) as job:
        for values in steps:
            job.step(values, statistics=NINE, raw=False)
    trial = tensortrial.create_trial(tmp_path)
    for step, values in enumerate(steps):
        for name, value in values.items():
            found = {each: number.item() for (each, _), number in trial.tensor(name).reduction_values(step).items()}
            assert found == pytest.approx(statistics(value, NINE), rel=1e-12, abs=1e-12), name
