"""A run that is open in one process is read in others: forked next to a thread that reads, spawned, and by copies."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from night.forks import STEPS, answers, fork_next_to_readers, in_child, write

import tensortrial
from support.runs import Job
from support.servers import ObjectStore
from support.waiting import wait_until
from tensortrial.engines.base import Database
from tensortrial.engines.duckdb import DuckDBEngine
from tensortrial.errors import ConfigurationError, RunClosed
from tensortrial.read.trial import Trial, run_reader_of
from tensortrial.storage.open import Storage


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(str(tmp_path / "run"))
    return tmp_path / "run"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_forked_beside_a_reading_thread_reads_the_run(folder: Path) -> None:
    fork_next_to_readers(folder, [0.0, 0.002])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("open_it", [tensortrial.create_trial, tensortrial.open_runs])
def test_a_child_forked_while_another_thread_starts_an_engine_makes_queries(folder: Path, open_it: Any) -> None:
    starts, is_forked = threading.Event(), threading.Event()

    class SlowEngine(DuckDBEngine):
        def connect(self, storages: Sequence[Storage]) -> Database:
            starts.set()
            assert is_forked.wait(60)
            return super().connect(storages)

    with open_it(folder) as opened, open_it(folder, engine=SlowEngine()) as slow:
        thread = threading.Thread(target=slow.sql, args=("select count(*) from steps",))
        thread.start()
        assert starts.wait(60)
        status = in_child(lambda: opened.sql("select count(*) from steps").fetchall())
        is_forked.set()
        thread.join()
    assert status == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_sees_what_is_new_and_leaves_the_parent_alone(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    job.publish({"w": 1.0})
    trial = tensortrial.create_trial(tmp_path / "run")
    closed = tensortrial.create_trial(tmp_path / "run")
    closed.close()

    def use() -> None:
        wait_until(lambda: trial.steps() == [0, 1])
        trial.close()
        with pytest.raises(RunClosed):
            closed.steps()

    writer = threading.Timer(0.2, lambda: (job.step({"w": 1.0}), job.flush()))
    writer.start()
    assert in_child(use) == 0
    writer.join()
    assert trial.steps() == [0, 1]
    job.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_that_ends_like_a_program_does_not_hang(folder: Path) -> None:
    trial = tensortrial.create_trial(folder)
    answers(trial)
    context = multiprocessing.get_context("fork")
    process = context.Process(target=answers, args=(trial,))
    process.start()
    process.join(60)
    assert process.exitcode == 0


@pytest.mark.parametrize("again", [lambda each: pickle.loads(pickle.dumps(each)), copy.deepcopy, copy.copy])
def test_a_copy_answers_like_the_original(folder: Path, again: Callable[[Any], Any]) -> None:
    trial = tensortrial.create_trial(folder, "mine", range_steps=(2, None))
    other = again(trial)
    assert (other.name, other.path, other.range_steps) == ("mine", str(folder), (2, None))
    assert answers(other) == answers(trial)
    assert again(trial.tensor("w")).steps() == [*range(2, STEPS)]
    trial.close()
    assert other.steps() == [*range(2, STEPS)]
    with tensortrial.no_refresh(other):
        assert not run_reader_of(again(other)).is_refreshing
    runs = tensortrial.open_runs([folder, other])
    copied = again(runs)
    runs.close()
    assert copied.names == ["run"]
    assert copied.sql("select count(*) from tensors").fetchall() == [(2 * STEPS,)]


def test_a_spawned_process_opens_the_run_again(folder: Path) -> None:
    trial = tensortrial.create_trial(folder)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(Trial.steps, (trial,)) == [*range(STEPS)]
        assert pool.apply(pickle.dumps, (trial,))


@pytest.mark.s3
def test_a_copy_of_a_trial_in_an_object_store_has_its_options(moto_s3: ObjectStore) -> None:
    url = f"{moto_s3.new_bucket()}/run"
    write(url, storage_options=moto_s3.storage_options)
    trial = tensortrial.create_trial(url, storage_options=moto_s3.storage_options)
    assert answers(pickle.loads(pickle.dumps(trial))) == answers(trial)
    assert in_child(lambda: answers(trial)) == 0


def test_a_trial_on_spark_is_not_pickled() -> None:
    pytest.importorskip("pyspark")
    from tensortrial.engines.spark import SparkEngine

    engine: Any = SparkEngine(None)
    assert copy.deepcopy(engine) is engine
    with pytest.raises(ConfigurationError, match="open it there"):
        pickle.dumps(engine)
