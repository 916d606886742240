"""Readers, writers and other compactions while a run is compacted, and processes that die meanwhile."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from night.compactions import compact_and_kill

import tensortrial
from support.compacted_runs import assert_chunks_are_named, index_files, kill, rows_of, rows_seen, write
from tensortrial.maintenance.compaction import compact
from tensortrial.read.trial import Trial, run_reader_of
from tensortrial.storage.local import LocalStorage

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_is_small")]


# ---------------------------------------------------------------------------------------------------------- readers


@pytest.fixture(params=["ended", "live"])
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    write(tmp_path, 70)
    if request.param == "live":
        kill(tmp_path)
    return tmp_path


QUESTIONS: list[Callable[[Trial], Any]] = [
    lambda trial: trial.tensor("loss").value(40),
    lambda trial: trial.tensor("w").reduction_value(40, "l2"),
    lambda trial: trial.tensor("w").values(),
    lambda trial: trial.values(["w", "loss"]),
    lambda trial: trial.sql("select sum(scalar), count(*) from tensors").fetchall(),
    lambda trial: trial.tensor("loss").reduction_values(9),
    lambda trial: {name: rows[0][:9] for name, rows in run_reader_of(trial).rows_at_step(13).items()},
]


def test_queries_succeed_although_their_files_were_compacted(run: Path) -> None:
    """One trial a question, so that each of them is the first to meet a missing file."""
    expected = [question(tensortrial.create_trial(run)) for question in QUESTIONS]
    trials = [tensortrial.create_trial(run) for _ in QUESTIONS]
    with ExitStack() as unchanged:
        for trial in trials:
            unchanged.enter_context(tensortrial.no_refresh(trial))
        compact(run, delete_older_than=0)
        found = [question(trial) for question, trial in zip(QUESTIONS, trials, strict=True)]
        for trial in trials:
            assert trial.steps(show_incomplete_steps=True) == [*range(70)]
    np.testing.assert_equal(found, expected)


def test_a_reader_of_a_part_of_the_steps(run: Path) -> None:
    trial = tensortrial.create_trial(run, range_steps=(10, 20))
    compact(run, delete_older_than=0)
    assert trial.steps(show_incomplete_steps=True) == [*range(10, 20)]
    assert trial.tensor("loss").values() == {step: step / 2 for step in range(10, 20)}
    assert trial.sql("select count(*) from scalars").fetchall() == [(10,)]


@pytest.mark.parametrize("vanishes_after", ["listing", "half of a listing"])
def test_files_that_are_compacted_while_they_are_listed(tmp_path: Path, vanishes_after: str) -> None:
    write(tmp_path, 20)
    before = rows_of(tmp_path)

    class Listed(LocalStorage):
        compacted = False

        def _list_after(self, folder: str, after: str) -> list[str]:
            paths = super()._list_after(folder, after)
            if not self.compacted and paths:
                self.compacted = True
                compact(tmp_path, delete_older_than=0)
                if vanishes_after == "half of a listing":
                    del paths[7:15]
            return paths

    trial = Trial(Listed(str(tmp_path)), tensortrial.create_trial(tmp_path).info, "t")
    assert rows_seen(trial) == before
    assert not trial.damaged


# -------------------------------------------------------------------------------------------------- real processes

PROGRAM = """
import sys
from tensortrial.maintenance.compaction import compact
compact(sys.argv[1], delete_older_than=float(sys.argv[2]))
"""


def compacting(folder: Path, delete_older_than: float = 0.0) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(PROGRAM), str(folder), str(delete_older_than)])


def test_compactions_that_are_killed_and_several_at_once_lose_nothing(tmp_path: Path) -> None:
    """The finder `compactions` kills them at many other moments."""
    write(tmp_path / "run", 100, steps_per_directory=22)
    compact_and_kill(tmp_path / "run", [0.0, 0.03, 0.06], at_once=3)
    assert len(index_files(tmp_path / "run")) == 5


def test_a_writer_and_readers_that_go_on_meanwhile(tmp_path: Path) -> None:
    """One process writes, one compacts and deletes all the time, one reads through one trial."""
    count = 250
    folder, enough = tmp_path / "run", tmp_path / "enough"
    program = f"""
        import os, sys, time
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from support.runs import Job
        with Job(sys.argv[1], flush_seconds=0, steps_per_directory=150) as job:
            for number in range({count}):
                job.step({{"loss": number / 2, "w": [number, number]}})
                time.sleep(0.01)
            while not os.path.exists(sys.argv[2]):
                time.sleep(0.01)
    """
    writer = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program), str(folder), str(enough)])
    trial = tensortrial.create_trial(folder, timeout=30)
    seen: list[int] = []
    compactions = 0
    try:
        while not trial.loaded_all_steps:
            compactor = compacting(folder)
            while compactor.poll() is None:
                steps = trial.steps(show_incomplete_steps=True)
                assert steps[: len(seen)] == seen
                seen = steps
                assert steps == [*range(len(steps))]
                if steps:
                    assert trial.tensor("loss").value(steps[-1]) == steps[-1] / 2
                    assert trial.tensor("w").value(steps[len(steps) // 2])[0] == steps[len(steps) // 2]
                    assert len(trial.tensor("loss").values()) >= len(steps)
            assert compactor.returncode == 0
            compactions += 1
            if compactions == 2:
                enough.touch()
        assert writer.wait(30) == 0
    finally:
        writer.kill()
        writer.wait()
    assert compactions > 1
    trial.refresh()
    assert trial.steps() == [*range(count)]
    assert trial.tensor("loss").values() == {step: step / 2 for step in range(count)}
    assert not trial.damaged
    compact(folder, delete_older_than=0)
    assert len(index_files(folder)) == 2
    assert rows_seen(trial) == rows_of(folder)
    assert_chunks_are_named(folder)
