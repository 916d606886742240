"""Tiles of a run, against the same by hand."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.runs import EPOCH, EVAL, TRAIN, Job, flip
from tensortrial import ReductionConfig, Run
from tensortrial.engines.duckdb import DuckDBEngine
from tensortrial.errors import RunClosed
from tensortrial.format.record import Plan, Record, Step
from tensortrial.maintenance.compaction import compact
from tensortrial.mode import ModeKeys
from tensortrial.pages.grid import Grid
from tensortrial.pages.open_run import OpenRun
from tensortrial.pages.tiles import Choice, Tiles, width_for
from tensortrial.read.opening import create_trial
from tensortrial.read.run_reader import RunReader
from tensortrial.read.trial import run_reader_of

NAMES = ["a", "b", "c", "d"]
STEPS = 130


def value_of(name: str, worker: int, step: int) -> float:
    if (name, step) == ("b", 7):
        return np.nan
    if (name, step) == ("c", 50):
        return -np.inf
    return float(NAMES.index(name) * 1000 + 10 * (37 * step % 101) + worker)  # in no order


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two workers with several files, whose first half is compacted; the last tensor is saved at every third step."""
    out = tmp_path_factory.mktemp("fold") / "run"
    jobs = [Job(out, f"worker_{i}", 2) for i in range(2)]
    for number in range(STEPS):
        for worker, job in enumerate(jobs):
            step = job.begin(EVAL if number % 5 == 4 else TRAIN)
            names = NAMES if number % 3 == 0 else NAMES[:-1]
            values = {name: np.array([value_of(name, worker, number)]) for name in names}
            records = [Record(Plan(name, (), True, (), digest=True), value, EPOCH) for name, value in values.items()]
            job.writer.put(step, records, closes=True)
            if number % 40 == 39:
                job.writer.flush()
        if number == 79:
            for job in jobs:
                job.writer.flush()
            compact(out, delete_older_than=0)
    for job in jobs:
        job.close()
    return out


@pytest.fixture(scope="module")
def reader(run: Path) -> Iterator[RunReader]:
    """The run, opened."""
    with create_trial(run) as trial:
        yield run_reader_of(trial)


def by_hand(mode: str, worker: str, width: int) -> dict[tuple[str, int], list[float]]:
    cells: dict[tuple[str, int], list[float]] = {}
    counts = dict.fromkeys(["TRAIN", "EVAL", "GLOBAL"], 0)
    for number in range(STEPS):
        of_step = "EVAL" if number % 5 == 4 else "TRAIN"
        at = number if mode == "GLOBAL" else counts[of_step]
        counts[of_step] += 1
        if mode not in ("GLOBAL", of_step):
            continue
        for each in range(2):
            if worker in ("", f"worker_{each}"):
                for name in NAMES if number % 3 == 0 else NAMES[:-1]:
                    cells.setdefault((name, at // width), []).append(value_of(name, each, number))
    return cells


def check(grid: Grid, expected: dict[tuple[str, int], list[float]]) -> None:
    found = 0
    for row, name in enumerate(grid.names):
        for column in range(grid.columns):
            values = np.array(expected.get((name, grid.start + column), []))
            finite = values[np.isfinite(values)]
            at = row, column
            assert (grid.finite[at], grid.nonfinite[at]) == (len(finite), len(values) - len(finite))
            assert grid.total[at] == pytest.approx(finite.sum())
            assert grid.least[at] == (finite.min() if len(finite) else np.inf)
            assert grid.most[at] == (finite.max() if len(finite) else -np.inf)
            found += len(values) > 0
    assert found == len(expected)


@pytest.mark.parametrize(
    ("mode", "worker"), [("TRAIN", ""), ("EVAL", "worker_1"), ("GLOBAL", ""), ("GLOBAL", "worker_0")]
)
@pytest.mark.parametrize("columns", [STEPS, 17, 1])
def test_tiles_have_the_values_of_every_step(reader: RunReader, mode: str, worker: str, columns: int) -> None:
    tiles = Tiles(reader, reader.sources, lambda: NAMES)
    grid = tiles.grid(Choice("scalar", mode, worker), 0, STEPS, columns, STEPS)
    assert grid.width == width_for(STEPS, columns)
    check(grid, by_hand(mode, worker, grid.width))


def test_tiles_and_queries_of_several_threads_share_a_database(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second database would take as much memory again, and is seen nowhere else."""
    connect, connected = DuckDBEngine.connect, list[Any]()
    monkeypatch.setattr(DuckDBEngine, "connect", lambda *given: connected.append(given) or connect(*given))
    statistics, count = ["value", "digest_changed"] * 3, f"select count(*) from tensors where name = '{NAMES[0]}'"
    with create_trial(run) as trial, ThreadPoolExecutor(len(statistics)) as threads:
        page = OpenRun(trial)
        grids = threads.map(lambda statistic: page.grid(statistic, "TRAIN", "", (None, None), STEPS), statistics)
        rows = list(threads.map(lambda _: trial.sql(count).fetchall(), statistics))
        value, changed, *_ = found = list(grids)
    check(value, by_hand("TRAIN", "", 1))
    for again, first in zip(found[2:], [value, changed] * 2, strict=True):
        assert [each.tolist() for each in again.arrays] == [each.tolist() for each in first.arrays]
    assert rows == [[(2 * STEPS,)]] * len(statistics)
    assert len(connected) == 1
    with pytest.raises(RunClosed):
        page.tiles.grid(Choice("scalar", "TRAIN"), 0, STEPS, STEPS, STEPS)


def test_a_statistic_that_no_row_has_is_an_empty_grid(reader: RunReader) -> None:
    grid = Tiles(reader, reader.sources, lambda: NAMES).grid(Choice("l2", "GLOBAL"), 0, STEPS, 30, STEPS)
    assert grid.names == []
    assert grid.columns == 0


def test_a_damaged_file_is_named_and_the_rest_is_shown(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(run, tmp_path / "copy")
    reader = run_reader_of(create_trial(tmp_path / "copy"))
    (path, *_) = reader.sources.steps.files()
    flip(tmp_path / "copy" / path, 200, 255)
    tiles = Tiles(reader, reader.sources, lambda: NAMES)
    grid = tiles.grid(Choice("scalar", "GLOBAL"), 0, STEPS, 30, STEPS)
    expected = sum(len(values) for values in by_hand("GLOBAL", "", grid.width).values())
    assert 0 < grid.finite.sum() + grid.nonfinite.sum() < expected
    assert path in caplog.text


# Changes of digests.


@pytest.fixture(scope="module")
def changing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two workers; `still` changes at steps 10 and 30 of the second one only, `moving` at every step."""
    out = tmp_path_factory.mktemp("changing") / "run"
    jobs = [Job(out, f"worker_{i}", 2) for i in range(2)]
    for number in range(40):
        for worker, job in enumerate(jobs):
            step = job.begin(TRAIN)
            still = float((number >= 10) + (number >= 30)) * worker
            values = {"still": np.array([still, 1.0]), "moving": np.array([number, 1.0])}
            records = [Record(Plan(name, (), True, (), digest=True), value, EPOCH) for name, value in values.items()]
            job.writer.put(step, records, closes=True)
            if number % 10 == 9:
                job.writer.flush()
    for job in jobs:
        job.close()
    return out


def changes(grid: Grid, name: str) -> dict[int, tuple[float, int]]:
    row = grid.names.index(name)
    return {
        step: (float(total), int(count))
        for step, total, count in zip(grid.starts, grid.total[row], grid.finite[row], strict=True)
        if total
    }


def opened(run: Path) -> Any:
    return OpenRun(create_trial(run))


def test_changed_bits_are_counted_by_worker_across_files(changing: Path) -> None:
    grid = opened(changing).grid("digest_changed", "TRAIN", "", (None, None), 100)
    assert changes(grid, "still") == {10: (1, 2), 30: (1, 2)}
    assert changes(grid, "moving") == dict.fromkeys(range(1, 40), (2, 2))
    first = opened(changing).grid("digest_changed", "TRAIN", "worker_0", (None, None), 100)
    assert changes(first, "still") == {}


def test_changed_bits_of_some_steps_are_those_of_the_whole_run(changing: Path, tmp_path: Path) -> None:
    whole = opened(changing).grid("digest_changed", "TRAIN", "", (None, None), 100)
    shutil.copytree(changing, tmp_path / "long")
    with Job(tmp_path / "long", "worker_1", 2, resume=True) as job:
        # The run is so long now that a zoom reads its files again.
        job.put(Step(TRAIN, 10_000, 10_000), {"moving": np.array([0.0, 1.0])}, closes=True, digest=True)
    part = opened(tmp_path / "long").grid("digest_changed", "TRAIN", "", (25, 35), 100)
    assert (part.width, part.start, part.columns) == (1, 25, 10)
    assert changes(part, "still") == {30: (1, 2)}
    assert changes(part, "moving") == {
        step: count for step, count in changes(whole, "moving").items() if 25 <= step < 35
    }


def test_changed_bits_of_a_run_that_grows_are_those_of_the_whole_run(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    seen = None
    for number in range(6):
        job.publish({"x": np.array([number // 3, 1.0])}, TRAIN, digest=True)
        if number == 1:
            run = opened(tmp_path / "run")
        if number >= 1:
            run.refresh()
            seen = run.grid("digest_changed", "TRAIN", "", (None, None), 100)
    assert seen is not None
    assert changes(seen, "x") == {3: (1, 1)}
    assert seen.finite.sum() == 5
    job.close()


def test_update_ratios_are_rows_of_their_parameters(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    for number in range(3):
        job.step({"w": np.ones(3), "update_ratio/w": 0.25 * number, "loss": 1.0}, TRAIN, statistics=("l2",))
    job.close()
    run = opened(tmp_path / "run")
    assert "update_ratio" in run.statistics
    grid = run.grid("update_ratio", "TRAIN", "", (None, None), 100)
    assert grid.names == ["w"]
    assert grid.most.tolist() == [[0.0, 0.25, 0.5]]


def test_gradients_are_divided_by_their_parameters(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    for number in range(3):
        values = {
            "w": np.full(4, 2.0),
            "gradient/w": np.full(4, float(number)),
            "b": np.zeros(2),
            "gradient/b": np.ones(2),
        }
        job.step(values, TRAIN, statistics=("l2",), raw=False)
    job.close()
    run = opened(tmp_path / "run")
    grid = run.grid("gradient_ratio", "TRAIN", "", (None, None), 100)
    assert grid.names == ["w"]  # b is zero
    assert grid.most.tolist() == [[0.0, 0.5, 1.0]]
    assert "update_ratio" not in run.statistics


def test_a_statistic_that_was_saved_in_another_form_for_a_time_has_no_holes(tmp_path: Path) -> None:
    for number, name in enumerate(("std", "variance", "std")):
        form = ReductionConfig(reductions=[name], save_shape=True)
        with Run(tmp_path / "run", reduction_config=form, resume=number > 0) as run:
            for step in range(10 * number, 10 * number + 10):
                run.save_tensor("w", np.array([0.0, 4.0]), step=step)
    grid = opened(tmp_path / "run").grid("std", ModeKeys.GLOBAL.name, "", (None, None), 100)
    assert grid.most.tolist() == [[2.0] * 30]


def test_a_statistic_is_saved_or_follows_from_saved_ones(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    for _ in range(2):
        job.put(step := job.begin(TRAIN), {"x": np.ones(4)}, statistics=("l2",))
        job.put(step, {"y": np.ones(4)}, closes=True, statistics=("abs_l2",))
    job.close()
    grid = opened(tmp_path / "run").grid("l2", ModeKeys.TRAIN.name, "", (None, None), 100)
    assert grid.names == ["x", "y"]
    assert grid.most.tolist() == [[2.0, 2.0], [2.0, 2.0]]


@pytest.mark.parametrize("columns", [3, 1])
def test_of_a_tensor_that_was_saved_again_the_last_value_is_shown(tmp_path: Path, columns: int) -> None:
    with Job(tmp_path, flush_seconds=3600) as job:
        steps = [job.step({"x": float(number)}) for number in range(3)]
        job.flush()
        reader = run_reader_of(create_trial(tmp_path))
        tiles = Tiles(reader, reader.sources, lambda: ["x"])
        before = tiles.grid(Choice("scalar", "GLOBAL"), 0, 3, columns, 3)
        assert (before.finite.sum(), before.total.sum()) == (3, 3.0)
        job.put(steps[1], {"x": 10.0}, closes=True)
        job.flush()
        reader.refresh()
        after = tiles.grid(Choice("scalar", "GLOBAL"), 0, 3, columns, 3)
        assert (after.finite.sum(), after.total.sum(), after.most.max()) == (3, 12.0, 10.0)
