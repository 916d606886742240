"""A run that is open in one process is read in others: forked next to a thread that reads, spawned, and by copies."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from support.runs import TRAIN, Job
from support.servers import ObjectStore
from tensortrial.errors import ConfigurationError, QueryError, RunClosed
from tensortrial.read.trial import Trial, run_reader_of
from tensortrial.rules import AllZero

STEPS = 8


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(str(tmp_path / "run"))
    return tmp_path / "run"


def write(url: str, **options: Any) -> None:
    with Job(url, **options) as job:
        for step in range(STEPS):
            job.step({"w": np.full(64, float(step)), "loss": float(step)}, TRAIN, statistics=("l2",))


def answers(trial: Trial) -> Any:
    tensor = trial.tensor("w")
    query = "select name, count(*) from tensors group by name order by name"
    return trial.steps(), trial.tensor_names(), tensor.value(3).tolist(), trial.sql(query).fetchall()


def in_child(work: Callable[[], Any]) -> int:
    """The exit status of a forked child that does some work, -1 if it hangs."""
    child = os.fork()
    if not child:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


@contextmanager
def reading(*work: Callable[[], Any]) -> Iterator[None]:
    """Threads that read, so that a fork finds locks held."""
    stop = threading.Event()

    def read(each: Callable[[], Any]) -> None:
        while not stop.is_set():
            each()
            time.sleep(0.005)

    threads = [threading.Thread(target=read, args=(each,)) for each in work]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def forks_beside_a_reader(folder: Path, count: int) -> None:
    trial, runs = tensortrial.create_trial(folder), tensortrial.open_runs(folder)
    rule = AllZero(trial, tensor_regex="w")
    expected = answers(trial)

    inherited = trial.sql("select 1")

    def use() -> None:
        with pytest.raises(QueryError, match="make the query again"):
            inherited.fetchall()
        assert answers(trial) == expected
        assert runs.sql("select count(*) from tensors").fetchall() == [(2 * STEPS,)]
        assert len(rule.evaluate(0)) == 1
        trial.close()

    def follow() -> None:
        trial.refresh()
        answers(trial)
        rule.evaluate(0)

    with reading(follow, lambda: tensortrial.create_trial(folder).close()):
        for number in range(count):
            time.sleep(0.002 * (number % 5))
            assert in_child(use) == 0
    assert answers(trial) == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_forked_beside_a_reading_thread_reads_the_run(folder: Path) -> None:
    forks_beside_a_reader(folder, 2)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_hundred_children_forked_beside_a_reading_thread_read_the_run(folder: Path) -> None:
    forks_beside_a_reader(folder, 100)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_sees_what_is_new_and_leaves_the_parent_alone(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    job.step({"w": 1.0})
    job.flush()
    trial = tensortrial.create_trial(tmp_path / "run")
    closed = tensortrial.create_trial(tmp_path / "run")
    closed.close()

    def use() -> None:
        while trial.steps() != [0, 1]:
            time.sleep(0.01)
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
