"""A raw value that is not the one that was saved is an error, never an answer."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from support.runs import Job, flip
from tensortrial.errors import CorruptFile, TensorTrialError, TensorUnavailableForStep
from tensortrial.maintenance.compaction import compact
from tensortrial.read.opening import create_trial
from tensortrial.statistics.digest import digest_of_array

SAVED = {
    "small": np.arange(40, dtype=np.float32).reshape(4, 10),
    "large": np.arange(20_000, dtype=np.int32),
    "text": np.array(["abc", "d"]),
}


def write(folder: Path, steps: int = 2, **options: Any) -> Path:
    with Job(folder, flush_seconds=0, **options) as job:
        for step in range(steps):
            job.step({name: value + step if value.dtype.kind != "U" else value for name, value in SAVED.items()})
    return folder


def expected(name: str, step: int) -> Any:
    return SAVED[name] if name == "text" else SAVED[name] + step


RUNS: dict[str, Callable[[Path], Path]] = {
    "parts": lambda folder: write(folder, part_bytes=1000),
    "zstd in parts": lambda folder: write(folder, codec="zstd", part_bytes=1000),
}
"""Runs that `make flips` does not have."""


def flips(path: Path, count: int) -> Iterator[bytes]:
    """Yield the content of a file with one bit flipped, for bits that are spread over the file."""
    data = bytearray(path.read_bytes())
    for bit in np.random.default_rng(7).integers(0, 8 * len(data), count).tolist():
        data[bit // 8] ^= 1 << bit % 8
        yield bytes(data)
        data[bit // 8] ^= 1 << bit % 8


def read(read_all: Callable[[Any], dict[tuple[str, int], Any]], folder: Path) -> str:
    """Return "whole", or "damaged" after a named error. Anything else fails."""
    try:
        with create_trial(folder) as trial:
            found = read_all(trial)
    except TensorTrialError:
        return "damaged"
    for (name, step), value in found.items():
        np.testing.assert_array_equal(value, expected(name, step))
    return "whole"


def by_value(trial: Any) -> dict[tuple[str, int], Any]:
    return {(name, step): trial.tensor(name).value(step) for name in SAVED for step in (0, 1)}


def by_values(trial: Any) -> dict[tuple[str, int], Any]:
    found = trial.values(list(SAVED), steps=[0, 1])
    return {(name, step): value for name, by_step in found.items() for step, value in by_step.items()}


@pytest.mark.parametrize("made", RUNS.values(), ids=RUNS)
@pytest.mark.slow
def test_a_flipped_bit_of_a_chunk_is_never_in_an_answer(made: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = made(tmp_path / "run")
    assert read(by_value, folder) == read(by_values, folder) == "whole"
    chunk = max((folder / "tensors").rglob("*.parquet"), key=lambda path: path.stat().st_size)
    whole = chunk.read_bytes()
    outcomes = set()
    for number, data in enumerate(flips(chunk, 30)):
        chunk.write_bytes(data)
        outcomes.add(read((by_value, by_values)[number % 2], folder))
    chunk.write_bytes(whole)
    assert "damaged" in outcomes


def damaged(folder: Path) -> tuple[Path, str]:
    """Flip a bit of the value of `small` at step 1 of a run; return the run and the path of its chunk."""
    ((chunk, offset),) = (
        create_trial(folder).sql("select chunk, \"offset\" from tensors where name = 'small' and global_step = 1")
    ).fetchall()
    flip(folder / chunk, offset + 17)
    return folder, chunk


class TestError:
    def test_names_file_tensor_step_and_worker(self, tmp_path: Path) -> None:
        folder, chunk = damaged(write(tmp_path / "run"))
        for read_all in (by_value, by_values):
            with pytest.raises(CorruptFile) as error:
                read_all(create_trial(folder))
            assert error.value.path == chunk
            assert "'small' at step 1 of worker 'worker_0' is damaged" in str(error.value)

    def test_is_of_the_damaged_value_only(self, tmp_path: Path) -> None:
        folder, _ = damaged(write(tmp_path / "run"))
        trial = create_trial(folder)
        np.testing.assert_array_equal(trial.tensor("small").value(0), expected("small", 0))
        np.testing.assert_array_equal(trial.tensor("large").value(1), expected("large", 1))


class TestSwitch:
    def test_verify_false_reads_what_is_there(self, tmp_path: Path) -> None:
        folder, _ = damaged(write(tmp_path / "run"))
        trial = create_trial(folder, verify=False)
        for each in (trial, copy.copy(trial), pickle.loads(pickle.dumps(trial))):
            assert not np.array_equal(each.tensor("small").value(1), expected("small", 1))
        (run,) = tensortrial.open_runs(folder, verify=False).names
        assert by_values(tensortrial.open_runs(folder, verify=False).trial(run))
        with pytest.raises(CorruptFile):
            by_values(pickle.loads(pickle.dumps(tensortrial.open_runs(folder))).trial(run))


class TestDigest:
    def test_of_a_raw_value_is_in_the_index(self, tmp_path: Path) -> None:
        trial = create_trial(write(tmp_path / "run"))
        found = dict(trial.sql("select name, digest from tensors where global_step = 1").fetchall())
        assert found == {name: digest_of_array(expected(name, 1)) for name in SAVED}
        assert trial.sql("select typeof(digest) from tensors limit 1").fetchall() == [("UBIGINT",)]

    def test_of_a_number_in_the_index_is_saved_on_request_only(self, tmp_path: Path) -> None:
        with Job(tmp_path / "run") as job:
            asked = {"raw": True, "digest": True}
            job.step({"plain": 0.5, "number": (asked, 0.5), "array": (asked, np.array([2], np.int8)), "b": np.ones(1)})
        found = dict(create_trial(tmp_path / "run").sql("select name, digest from tensors").fetchall())
        of_array = digest_of_array(np.array([2], np.int8))
        assert found == {"plain": None, "number": digest_of_array(np.array(0.5)), "array": of_array, "b": None}

    def test_is_a_statistic_of_its_own(self, tmp_path: Path) -> None:
        plan = {"raw": False, "digest": True}
        with Job(tmp_path / "run") as job:
            job.step({"a": ({**plan, "statistics": ("mean",)}, np.ones(3)), "b": (plan, np.ones((3, 0)))})
        trial = create_trial(tmp_path / "run")
        assert trial.tensor("a").reduction_value(0, "digest") == digest_of_array(np.ones(3))
        assert trial.tensor("b").reduction_value(0, "digest") == digest_of_array(np.ones((3, 0)))
        assert trial.tensor("a").reduction_value(0, "mean") == 1
        with pytest.raises(TensorUnavailableForStep):
            trial.tensor("a").value(0)

    def test_that_was_not_saved_is_computed_from_the_raw_value(self, tmp_path: Path) -> None:
        with Job(tmp_path / "run") as job:
            job.step({"loss": 0.5, "only": ({"raw": False, "statistics": ("mean",)}, np.ones(3))})
        trial = create_trial(tmp_path / "run")
        assert trial.tensor("loss").reduction_value(0, "digest") == digest_of_array(np.array(0.5))
        with pytest.raises(TensorUnavailableForStep, match="neither its digest nor its raw value"):
            trial.tensor("only").reduction_value(0, "digest")

    def test_of_a_tensor_that_is_saved_twice_in_a_step_is_that_of_the_last_value(self, tmp_path: Path) -> None:
        with Job(tmp_path / "run") as job:
            step = job.begin()
            job.put(step, {"a": np.zeros(4), "b": np.ones(4)})
            job.put(step, {"a": np.ones(5)}, closes=True)
        trial = create_trial(tmp_path / "run")
        np.testing.assert_array_equal(trial.tensor("a").value(0), np.ones(5))
        np.testing.assert_array_equal(trial.tensor("b").value(0), np.ones(4))


def test_a_damaged_value_is_not_merged_and_its_chunk_stays(tmp_path: Path) -> None:
    folder, chunk = damaged(write(tmp_path / "run", steps=3))
    compact(folder, delete_older_than=0)
    assert (folder / chunk).exists()
    with pytest.raises(CorruptFile, match="worker_0"):
        create_trial(folder).tensor("small").value(1)
    np.testing.assert_array_equal(create_trial(folder).tensor("small").value(2), expected("small", 2))
