"""The statistics of shards that several workers saved are merged into those of the whole tensor by SQL."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensortrial
from support.runs import Job
from tensortrial.statistics.sketch import quantile, sketch_of

NAMES = (
    "min",
    "max",
    "mean",
    "std",
    "l1",
    "l2",
    "abs_min",
    "skewness",
    "kurtosis",
    "nan_count",
    "inf_count",
    "zero_count",
)


def save_shards(run: Path, shards: list[Any], names: tuple[str, ...] = NAMES) -> None:
    jobs = [Job(run, f"worker_{number}", len(shards)) for number in range(len(shards))]
    for job, shard in zip(jobs, shards, strict=True):
        job.step({"w": shard}, raw=False, statistics=names)
        job.close()


def merged(run: Path) -> dict[str, Any]:
    answer = tensortrial.create_trial(run).sql("select * from merged_reductions where name = 'w'")
    (row,) = answer.fetchall()
    return dict(zip(answer.columns, row, strict=True))


def normal(elements: int, mean: float = 0.0) -> Any:
    return np.random.default_rng(elements).normal(mean, 1 + abs(mean) / 10, elements)


AUDITED: dict[str, list[Any]] = {
    "an empty shard": [normal(0), normal(50, 2), normal(13)],
    "one infinity": [normal(5), np.array([1.0, np.inf, 2.0]), normal(9)],
    "both infinities": [np.array([np.inf, 0.0]), np.array([1.0, -np.inf, 2.0]), normal(9)],
    "nan, inf and empty": [normal(0), np.array([1.0, np.nan, 2.0]), np.array([np.inf, 1.0])],
    "one element each": [np.array([1.0]), np.array([2.0]), np.array([4.0])],
    "no dimensions": [np.array(2.5), np.array(3.5), np.array(-1.0)],
    "all equal": [np.full(3, 2.0), np.full(5, 2.0), np.full(1, 2.0)],
    "equal in each shard": [np.full(3, 2.0), np.full(5, 3.0), np.full(1, 7.0)],
    "far from zero": [normal(1000) + 1e6, normal(500) + 1e6, normal(3) + 1e6],
    "huge": [normal(4) * 1e150, normal(5) * 1e150, normal(6) * 1e150],
    "bfloat16": [each.astype(ml_dtypes.bfloat16) for each in (normal(7), normal(100, 5), normal(1, -3))],
    "float16": [each.astype(np.float16) for each in (normal(7), normal(100, 5), normal(0))],
    "int64": [(100 * each).astype(np.int64) for each in (normal(7), normal(70), normal(0))],
    "bool": [normal(7) > 0, normal(70) > 1, normal(0) > 0],
    "strided": [normal(20)[::2], normal(30)[::-1], normal(3)],
}


@pytest.mark.parametrize("case", AUDITED)
def test_merged_statistics_and_quantiles_are_those_that_numpy_computes_of_all_elements(
    tmp_path: Path, case: str
) -> None:
    jobs = [Job(tmp_path, f"worker_{number}", 3) for number in range(3)]
    for job, shard in zip(jobs, AUDITED[case], strict=True):
        job.step({"w": shard}, raw=False, statistics=NAMES, sketch=True)
        job.close()
    found = merged(tmp_path)
    x = np.concatenate([np.ravel(each).astype(np.float64) for each in AUDITED[case]])
    with np.errstate(all="ignore"):
        mean, std = x.mean(), x.std()
        expected = {
            "elements": x.size,
            "min": x.min(),
            "max": x.max(),
            "mean": mean,
            "std": std,
            "variance": x.var(),
            "sum": x.sum(),
            "l1": np.abs(x).sum(),
            "l2": np.sqrt((x * x).sum()),
            "rms": np.sqrt((x * x).mean()),
            "abs_mean": np.abs(x).mean(),
            "abs_min": np.abs(x).min(),
            "abs_max": np.abs(x).max(),
            "skewness": ((x - mean) ** 3).mean() / std**3,
            "kurtosis": ((x - mean) ** 4).mean() / std**4,
            "nan_count": np.isnan(x).sum(),
            "inf_count": np.isinf(x).sum(),
            "zero_count": (x == 0).sum(),
        }
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-5, abs=1e-6, nan_ok=True)
    for percent in (1, 5, 25, 50, 75, 95, 99):
        exact = np.nan if np.isnan(x).any() else np.quantile(x, percent / 100, method="inverted_cdf")
        assert found[f"p{percent:02d}"] == pytest.approx(exact, rel=1 / 128, nan_ok=True)


def test_a_statistic_that_one_shard_lacks_is_null_in_the_whole(tmp_path: Path) -> None:
    jobs = [Job(tmp_path, f"worker_{number}", 2) for number in range(2)]
    for job, names in zip(jobs, (("l2", "min"), ("l2",)), strict=True):
        job.step({"w": np.array([3.0, 4.0])}, raw=False, statistics=names)
        job.close()
    found = merged(tmp_path)
    assert found["l2"] == pytest.approx(np.sqrt(50))
    assert found["rms"] == pytest.approx(np.sqrt(12.5))
    assert [found[name] for name in ("min", "mean", "kurtosis", "saturated_count")] == [None] * 4


def test_norms_follow_from_whatever_was_saved(tmp_path: Path) -> None:
    shards = [np.array([1.0, 2.0, 5.0]), np.array([-4.0, 8.0])]
    save_shards(tmp_path, shards, ("rms", "abs_mean"))
    found = merged(tmp_path)
    assert found["l2"] == pytest.approx(np.linalg.norm(np.concatenate(shards)))
    assert found["l1"] == pytest.approx(20.0)


QUANTILES = {"p01": 0.01, "p05": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95, "p99": 0.99}


def save_sketches(run: Path, shards: list[Any]) -> None:
    jobs = [Job(run, f"worker_{number}", len(shards)) for number in range(len(shards))]
    for job, shard in zip(jobs, shards, strict=True):
        job.step({"w": shard}, raw=False, sketch=True)
        job.close()


def test_quantiles_of_uneven_shards_are_those_of_the_whole(tmp_path: Path) -> None:
    whole = np.random.default_rng(0).standard_normal(30_000).astype(np.float32)
    whole[:500] = 0.0
    shards = [whole[:40], whole[40:70], whole[70:], whole[:0]]
    save_sketches(tmp_path, shards)
    expected = sketch_of(whole)
    assert expected is not None
    found = merged(tmp_path)
    assert {name: found[name] for name in QUANTILES} == {name: quantile(expected, q) for name, q in QUANTILES.items()}
    query = """
        select "value", sum("count") from (
            select unnest(sketch."values") as "value", unnest(sketch.counts) as "count" from tensors where name = 'w'
        ) group by "value" order by "value"
    """
    counted = tensortrial.create_trial(tmp_path).sql(query).fetchall()
    assert counted == list(zip(expected.values.tolist(), expected.counts.tolist(), strict=True))


@given(
    values=st.lists(st.floats(width=32) | st.integers(-3, 3).map(float), min_size=1, max_size=12),
    cut=st.integers(0, 12),
)
@settings(max_examples=12, deadline=None, derandomize=True)
def test_quantiles_of_any_shards_are_those_of_the_whole(values: list[float], cut: int) -> None:
    whole = np.array(values)
    expected = sketch_of(whole)
    assert expected is not None
    with tempfile.TemporaryDirectory() as folder:
        save_sketches(Path(folder), [whole[:cut], whole[cut:]])
        found = merged(Path(folder))
    for name, q in QUANTILES.items():
        assert found[name] == pytest.approx(quantile(expected, q), rel=0, abs=0, nan_ok=True)


def test_quantiles_are_null_if_one_shard_has_no_sketch(tmp_path: Path) -> None:
    jobs = [Job(tmp_path, f"worker_{number}", 2) for number in range(2)]
    for job, sketch in zip(jobs, (True, False), strict=True):
        job.step({"w": np.array([3.0, 4.0])}, raw=False, statistics=("l2",), sketch=sketch)
        job.close()
    found = merged(tmp_path)
    assert {found[name] for name in QUANTILES} == {None}
    assert found["l2"] == pytest.approx(np.sqrt(50))


def test_many_runs_are_merged_each_for_itself(tmp_path: Path) -> None:
    for name, value in (("a", 1.0), ("b", 2.0)):
        save_shards(tmp_path / name, [np.full(2, value), np.full(3, value)], ("l2",))
    found = tensortrial.open_runs(tmp_path).sql("select run, l2 from merged_reductions order by run").fetchall()
    assert found == [("a", pytest.approx(np.sqrt(5))), ("b", pytest.approx(np.sqrt(20)))]


@pytest.mark.parametrize("value", [0.1, 1e200, 1e-200, 0.0])
def test_equal_constants_in_several_parts_have_no_deviation(tmp_path: Path, value: float) -> None:
    save_shards(tmp_path, [np.full(size, value) for size in (3, 7, 100)])
    found = merged(tmp_path)
    assert found["std"] == 0
    assert np.isnan(found["skewness"])
    assert found["l2"] == pytest.approx(110**0.5 * value, rel=1e-12)
    assert found["rms"] == pytest.approx(value, rel=1e-12)
