"""What the writer promises: nothing lost, nothing seen before it can be read, and bounded memory."""

from __future__ import annotations

import os
import subprocess
import threading
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import tensortrial
from support import warm
from support.internals import queued_bytes, waiting_threads
from support.limits import keep_index_files
from support.runs import EVAL, TRAIN, Job
from support.waiting import wait_until
from tensortrial.errors import StorageError, UnsupportedValue, WorkerClaimed
from tensortrial.format.record import Plan, Record, ScalarBatch, Step
from tensortrial.format.schema import current_files
from tensortrial.storage.local import LocalStorage, _LocalSink
from tensortrial.storage.open import Sink
from tensortrial.write.writer import Writer

HOSTILE_NAMES = [
    "../x",
    "a/b",
    "",
    "x" * 10_000,
    "new\nline",
    "'\"`;--",
    "☃é\u202e",
    "a\0b",
    "/etc/passwd",
    ".",
    " ",
    "%2f",
]


def files(run: Path, folder: str) -> list[str]:
    """Return the published files of a folder; unfinished ones have names that begin with a dot."""
    paths = (run / folder).rglob("*.parquet")
    return sorted(str(path.relative_to(run / folder)) for path in paths if not path.name.startswith("."))


def test_flush_seconds_0_publishes_each_step_as_it_closes(tmp_path: Path) -> None:
    with Job(tmp_path, flush_seconds=0) as job:
        for count in range(1, 4):
            job.step({"a": 1.0})
            wait_until(lambda count=count: len(files(tmp_path, "index")) == count)


def test_flush_seconds_gathers_steps(tmp_path: Path) -> None:
    with Job(tmp_path / "late", flush_seconds=3600) as job, Job(tmp_path / "at once", flush_seconds=0) as other:
        for count in range(1, 6):
            job.step({"a": 1.0})
            other.step({"a": 1.0})
            wait_until(lambda count=count: len(files(tmp_path / "at once", "index")) == count)
        job.flush()
        assert len(files(tmp_path / "late", "index")) == 1


def test_without_flush_seconds_a_disk_is_published_to_every_second(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        began = time.monotonic()
        job.step({"a": 1.0})
        wait_until(lambda: (tmp_path / "index").exists())
        assert time.monotonic() - began > 0.5


def test_threads_that_wait_for_a_full_queue_do_not_wait_for_a_flush(tmp_path: Path) -> None:
    writer = Writer(LocalStorage(str(tmp_path)), "w", flush_seconds=3600, queue_bytes=1000)
    writer.put(Step(TRAIN, 0, 0), [Record(Plan("first", (), True), np.zeros(8), 0)], closes=True)  # plans the flush

    def put_many(number: int) -> None:
        for count in range(50):
            step = Step(TRAIN, 1 + 50 * number + count, 1 + 50 * number + count)
            writer.put(step, [Record(Plan("a", (), True), np.zeros(100, np.uint8), 0) for _ in range(4)], closes=True)

    threads = [threading.Thread(target=put_many, args=(number,), daemon=True) for number in range(8)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    assert not any(thread.is_alive() for thread in threads)
    writer.close()


def test_flush_bytes_publishes_before_the_time(tmp_path: Path) -> None:
    with Job(tmp_path, flush_seconds=3600, flush_bytes=100_000) as job:
        step = job.begin()
        job.put(step, {f"w{i}": np.zeros(10_000) for i in range(3)})
        wait_until(lambda: files(tmp_path, "tensors"))
        assert not files(tmp_path, "index")
        job.put(step, {"w3": np.zeros(10_000)}, closes=True)
        job.step({"w": np.zeros(20_000)})
        wait_until(lambda: files(tmp_path, "index"))
    trial = tensortrial.create_trial(tmp_path)
    assert trial.steps() == [0, 1]
    assert trial.tensor("w2").value(0).shape == (10_000,)


def test_an_open_step_is_not_seen_and_its_values_are_not_lost(tmp_path: Path) -> None:
    job = Job(tmp_path, flush_seconds=3600)
    job.step({"a": np.zeros(3)})
    step = job.begin()
    job.put(step, {"b": np.ones(3)})
    job.flush()
    assert tensortrial.create_trial(tmp_path).steps(show_incomplete_steps=True) == [0]
    job.put(step, {"c": np.ones(4)}, closes=True)
    job.close()
    trial = tensortrial.create_trial(tmp_path)
    assert [trial.tensor(name).value(1).sum() for name in "bc"] == [3, 4]


def test_a_name_saved_twice_in_a_step_keeps_the_last_value(tmp_path: Path) -> None:
    with Job(tmp_path, flush_seconds=3600) as job:
        step = job.begin()
        job.put(step, {"a": np.zeros(3), "b": 1.0})
        job.flush()
        job.put(step, {"a": np.ones(3)})
        job.put(step, {"a": np.full(3, 2.0), "b": 2.0}, closes=True)
    trial = tensortrial.create_trial(tmp_path)
    assert trial.tensor("a").value(0).tolist() == [2, 2, 2]
    assert trial.tensor("b").value(0) == 2
    assert trial.sql("select count(*) from tensors").fetchall() == [(2,)]


def test_a_batch_of_scalars_becomes_rows_like_any_other(tmp_path: Path) -> None:
    plans = [Plan(name, ("metrics",), True) for name in "abc"]
    with Job(tmp_path, flush_seconds=3600) as job:
        step = job.begin()
        job.put(step, {"b": np.ones(3)})
        job.writer.put(step, [ScalarBatch(plans, [1.0, 2.0, float("inf")], [5, 5, 5])], closes=True)
    trial = tensortrial.create_trial(tmp_path)
    assert [trial.tensor(name).value(0).tolist() for name in "abc"] == [1, 2, float("inf")]
    assert trial.tensor_names(collection="metrics") == ["a", "b", "c"]
    assert trial.tensor("a").value(0).dtype == np.float64


def test_steps_of_all_modes_are_in_one_log_in_their_order(tmp_path: Path) -> None:
    with Job(tmp_path, flush_seconds=3600, steps_per_directory=10) as job:
        for number in range(35):
            job.step({"a": np.zeros(2)}, mode=EVAL if number % 3 else TRAIN)
            if number % 4 == 0:
                job.flush()
    trial = tensortrial.create_trial(tmp_path)
    assert trial.steps() == list(range(35))
    assert trial.sql("select global_step from tensors").fetchall() == [(step,) for step in range(35)]
    folders = {path.rpartition("/")[0] for path in files(tmp_path, "tensors")}
    assert {"mode=TRAIN/step=000000000010/worker=worker_0", "mode=EVAL/step=000000000020/worker=worker_0"} <= folders


def test_hostile_names_are_data(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Job(run, worker="/job:0/é ..", flush_seconds=0) as job:
        job.step({name: np.full(3, number) for number, name in enumerate(HOSTILE_NAMES)}, collections=("a/../'b",))
        job.step({name: float(number) for number, name in enumerate(HOSTILE_NAMES)})
    assert sorted(os.listdir(tmp_path)) == ["run"]
    assert sorted(os.listdir(run)) == ["collections", "end", "index", "run.json", "tensors"]
    trial = tensortrial.create_trial(run)
    assert trial.tensor_names() == sorted(HOSTILE_NAMES)
    assert trial.workers() == ["/job:0/é .."]
    for number, name in enumerate(HOSTILE_NAMES):
        assert trial.tensor(name).value(0).tolist() == [number] * 3
        assert trial.tensor(name).value(1) == number
        found = trial.sql("select count(*) from tensor_values where name = $name", {"name": name})
        assert found.fetchall() == [(1,)]
    assert trial.tensor_names(collection="a/../'b") == sorted(HOSTILE_NAMES)


@pytest.mark.parametrize("worker", [".", "..", ".hidden", "../../x", "a b", "%2e", "x" * 200])
def test_hostile_worker_names_are_data(tmp_path: Path, worker: str) -> None:
    run = tmp_path / "run"
    with Job(run, worker) as job:
        job.step({"a": np.zeros(3)})
    trial = tensortrial.create_trial(run)
    assert trial.workers() == [worker]
    assert trial.loaded_all_steps
    assert trial.tensor("a").value(0, worker=worker).tolist() == [0, 0, 0]
    assert os.listdir(tmp_path) == ["run"]


def test_a_tensor_name_that_is_not_a_text_is_refused_before_it_reaches_the_writer() -> None:
    with pytest.raises(UnsupportedValue, match="surrogates"):
        Plan("\ud800", (), True)


class StorageBehind(LocalStorage):
    """A disk that publishes once the queue is full, or will not become so."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.is_full, self.all_put = lambda: True, threading.Event()
        self.found_full = 0

    def sink(self, path: str) -> Sink:
        while not self.is_full():
            if self.all_put.wait(0.001):
                return super().sink(path)
        self.found_full += 1
        return super().sink(path)


def test_training_waits_rather_than_memory_growing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_index_files(monkeypatch)
    storage, step_bytes, queue_bytes = StorageBehind(str(tmp_path)), 16_000, 50_000
    writer = Writer(storage, "w", flush_seconds=0, queue_bytes=queue_bytes)
    storage.is_full = lambda: queued_bytes(writer) + step_bytes > queue_bytes
    most = 0
    for number in range(30):
        values = np.zeros(step_bytes // 8)
        writer.put(Step(TRAIN, number, number), [Record(Plan("a", (), True), values, 0)], closes=True)
        most = max(most, queued_bytes(writer))
    storage.all_put.set()
    assert most <= queue_bytes
    # More than fits into the queue was put, and the queue was full whenever something left it.
    assert storage.found_full > 5
    writer.close()
    # Steps that had to wait were published together.
    index = [tmp_path / "index" / file for file in current_files(files(tmp_path, "index"))]
    assert sum(pq.read_metadata(file).num_rows for file in index) == 30
    assert len(index) < 30


def test_a_value_larger_than_the_queue_is_accepted(tmp_path: Path) -> None:
    with Job(tmp_path, queue_bytes=10) as job:
        job.step({"a": np.zeros(1000)})
        job.step({"a": np.zeros(1000)})
    assert tensortrial.create_trial(tmp_path).steps() == [0, 1]


def test_training_that_waits_for_the_queue_does_not_wait_for_a_flush(tmp_path: Path) -> None:
    writer = Writer(LocalStorage(str(tmp_path)), "w", flush_seconds=3600, queue_bytes=100_000)

    def put(number: int, nbytes: int) -> None:
        record = Record(Plan("a", (), True), np.zeros(nbytes // 8), 0)
        writer.put(Step(TRAIN, number, number), [record], closes=True)

    put(0, 1_000)
    wait_until(lambda: not queued_bytes(writer))  # the first flush is planned
    put(1, 1_000)  # little, which may wait for it
    thread = threading.Thread(target=put, args=(2, 100_000))
    thread.start()
    thread.join(60)
    is_done = not thread.is_alive()
    writer.close()
    assert is_done


def test_training_waits_for_a_writer_that_is_far_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, is_ready = [0.0], [threading.Event() for _ in range(4)]
    monkeypatch.setattr("tensortrial.write.writer.time", types.SimpleNamespace(monotonic=lambda: now[0]))
    writer = Writer(LocalStorage(str(tmp_path)), "w")

    def put(number: int) -> None:
        record = Record(Plan("a", (), True), np.zeros(2), 0, ready=is_ready[number].wait)
        writer.put(Step(TRAIN, number, number), [record], closes=True)

    for number in range(3):
        put(number)
    now[0] = 60.0
    is_ready[0].set()  # the first of them was written a minute late, and others wait
    wait_until(lambda: queued_bytes(writer) < 3 * 80)
    thread = threading.Thread(target=put, args=(3,))
    thread.start()
    wait_until(lambda: waiting_threads(writer) or not thread.is_alive())
    had_to_wait = thread.is_alive()
    for event in is_ready:
        event.set()
    thread.join()
    writer.close()
    assert had_to_wait
    index = [tmp_path / "index" / file for file in current_files(files(tmp_path, "index"))]
    assert sum(pq.read_metadata(file).num_rows for file in index) == 4


class FullDisk(LocalStorage):
    """A storage that can be made to refuse files."""

    full = False

    def sink(self, path: str) -> Sink:
        if self.full:
            raise StorageError(path, "the disk is full")
        return super().sink(path)


def test_an_error_stops_the_writer_and_is_raised_to_all_that_wait(tmp_path: Path) -> None:
    storage = FullDisk(str(tmp_path))
    writer = Writer(storage, "w", flush_seconds=3600, queue_bytes=40_000)
    record = [Record(Plan("a", (), True), np.zeros(2_000), 0)]
    writer.put(Step(TRAIN, 0, 0), record, closes=True)
    writer.flush()
    storage.full = True
    caught: list[BaseException] = []

    def train() -> None:
        try:
            for number in range(1, 10_000):
                writer.put(Step(TRAIN, number, number), record, closes=True)
        except StorageError as exc:
            caught.append(exc)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert "full" in str(caught[0])
    for act in (writer.flush, writer.close):
        with pytest.raises(StorageError):
            act()
    writer.close()
    assert len(files(tmp_path, "index")) == 1


@pytest.mark.timeout(60)
def test_a_flush_that_waits_for_a_write_that_fails_raises_its_error(tmp_path: Path) -> None:
    storage = FullDisk(str(tmp_path))
    storage.full = True
    for number in range(5):
        writer = Writer(storage, f"w{number}", flush_seconds=3600, flush_bytes=1)
        writer.put(Step(TRAIN, 0, 0), [Record(Plan("a", (), True), np.zeros(2_000), 0)], closes=True)
        for act in (writer.flush, writer.close):
            with pytest.raises(StorageError, match="full"):
                act()


def test_a_full_disk_stops_the_writer_and_keeps_what_was_published(small_disk: Path) -> None:
    job = Job(small_disk / "run", flush_seconds=0)
    values = np.random.default_rng(0).normal(size=20_000)
    with pytest.raises(StorageError, match="full"):
        _write_forever(job, values)
    with pytest.raises(StorageError, match="full"):
        job.close()
    trial = tensortrial.create_trial(small_disk / "run")
    steps = trial.steps(show_incomplete_steps=True)
    assert len(steps) >= 5
    for step in steps:
        assert (trial.tensor("a").value(step) == values).all()
    assert not trial.damaged
    trial.close()


def _write_forever(job: Job, values: np.ndarray[Any, Any]) -> None:
    while True:
        job.publish({"a": values})


CLAIM = """
import sys
from support.runs import Job
from tensortrial.errors import FileError, RunError
print("ready", flush=True)
sys.stdin.readline()
try:
    job = Job(sys.argv[1], "worker_0", 2)
    job.step({"a": float(sys.argv[2])})
    job.close()
    print("won")
except RunError as exc:
    print(type(exc).__name__)
"""


def test_of_two_processes_that_claim_one_worker_one_wins(tmp_path: Path) -> None:
    for attempt in range(2):
        run = tmp_path / str(attempt)
        children = [warm.start(["-c", CLAIM, run, number], stdin=subprocess.PIPE) for number in range(2)]
        for child in children:
            assert child.stdout.readline() == "ready\n"
        for child in children:
            child.stdin.write("go\n")
            child.stdin.flush()
        said = []
        for child in children:
            with child:
                said.append(child.communicate(timeout=30)[0].strip())
        assert said.count("won") == 1
        assert set(said) <= {"won", WorkerClaimed.__name__, "RunExists"}
        assert tensortrial.create_trial(run).tensor("a").value(0) == said.index("won")


def test_flush_raises_the_error_of_its_own_publishing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the writer's thread, which has failed, still cleans up."""
    flush_has_ended, abort = threading.Event(), _LocalSink.abort

    def fail(sink: _LocalSink) -> None:
        raise StorageError(sink.path, "the disk is full")

    def abort_late(sink: _LocalSink) -> None:
        flush_has_ended.wait(60)
        abort(sink)

    monkeypatch.setattr(_LocalSink, "publish", fail)
    monkeypatch.setattr(_LocalSink, "abort", abort_late)
    writer = Writer(LocalStorage(str(tmp_path)), "w", flush_seconds=3600)
    writer.put(Step(TRAIN, 0, 0), [Record(Plan("a", (), True), np.zeros(2_000), 0)], closes=True)
    try:
        with pytest.raises(StorageError, match="the disk is full"):
            writer.flush()
    finally:
        flush_has_ended.set()
    with pytest.raises(StorageError, match="the disk is full"):
        writer.close()


def test_a_compacted_index_whose_publication_seems_to_fail_keeps_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file server may publish the file, and lose its answer. No local disk does."""
    publish, failed = LocalStorage.publish_file, list[str]()

    def answer_lost(self: LocalStorage, temporary: str, path: str) -> None:
        publish(self, temporary, path)
        if path.startswith("index/") and "-" in path.rpartition("/")[2]:
            failed.append(path)
            raise StorageError(path, "the answer was lost")

    monkeypatch.setattr(LocalStorage, "publish_file", answer_lost)
    with Job(tmp_path) as job:
        for number in range(8):
            job.publish({"a": np.full(100, number)})
    assert failed
    found = tensortrial.create_trial(tmp_path).tensor("a").values()
    assert {step: int(each[0]) for step, each in found.items()} == {step: step for step in range(8)}
