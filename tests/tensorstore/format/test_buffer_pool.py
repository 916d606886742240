"""Buffers are used again, and only once nobody reads them any more."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

import tensortrial
from support.internals import queued_bytes
from support.waiting import wait_until
from tensortrial.format import buffer_pool
from tensortrial.format.buffer_pool import BATCHED_BYTES, BufferPool, fresh_memory
from tensortrial.format.chunk_writer import ChunkWriter
from tensortrial.format.record import BatchBuffers, Plan, Record, Step, TensorSpec, ValueBatch
from tensortrial.hooks.core.configuration.options import Framework, HookOptions
from tensortrial.hooks.core.process.rank import Rank
from tensortrial.hooks.core.recorder import Recorder
from tensortrial.mode import ModeKeys
from tensortrial.storage.open import open_storage

LARGE = BATCHED_BYTES


def test_a_released_buffer_is_used_again() -> None:
    pool = BufferPool()
    first = pool.acquire(np.zeros(LARGE, np.uint8))
    other = pool.acquire(np.ones(LARGE, np.uint8))
    assert not np.shares_memory(first, other)
    pool.release(first)
    again = pool.acquire(np.full((LARGE // 8, 1), 7.0))
    assert np.shares_memory(first, again)
    assert (again == 7.0).all()
    assert (other == 1).all()


@pytest.mark.parametrize("released", range(1, 6))
def test_released_buffers_keep_no_more_than_the_limit(released: int) -> None:
    pool = BufferPool(limit=2 * LARGE)
    acquired = [pool.acquire(np.zeros(LARGE, np.uint8)) for _ in range(5)]
    for copy in acquired[:released]:
        pool.release(copy)
    later = [pool.acquire(np.zeros(LARGE, np.uint8)) for _ in range(5)]
    used_again = [copy for copy in later if any(np.shares_memory(copy, before) for before in acquired)]
    assert 1 <= len(used_again) <= 2


def test_a_buffer_above_the_limit_is_not_used_again() -> None:
    pool = BufferPool(limit=2 * LARGE)
    larger = pool.acquire(np.zeros(3 * LARGE, np.uint8))
    pool.release(larger)
    assert not np.shares_memory(pool.acquire(np.zeros(3 * LARGE, np.uint8)), larger)


@pytest.mark.parametrize("layout", ["C", "F"])
def test_a_copy_is_in_c_order(layout: str) -> None:
    array = np.asarray(np.arange(float(LARGE)).reshape(64, -1), order=layout)  # type: ignore[call-overload]
    copy = BufferPool().acquire(array)
    assert copy.flags.c_contiguous
    assert (copy == array).all()


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_buffer_is_released_once_its_row_group_is_written(tmp_path: Path, codec: str) -> None:
    path = "tensors/mode=TRAIN/step=000000000000/worker=w/00000000.parquet"
    writer = ChunkWriter(open_storage(tmp_path).sink(path), path, "w", codec)
    pool, plan = BufferPool(), Plan("t", (), True)
    value = pool.acquire(np.zeros(LARGE, np.uint8))
    writer.append(
        Step(ModeKeys.TRAIN, 0, 0), Record(plan, value, 0, owner=pool), TensorSpec(plan, "uint8", (LARGE,), LARGE), []
    )
    assert not np.shares_memory(pool.acquire(np.zeros(LARGE, np.uint8)), value)
    writer.finish()
    assert np.shares_memory(pool.acquire(np.zeros(LARGE, np.uint8)), value)
    writer.publish()


@pytest.fixture
def allocated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of fresh memory. The process as a whole may take memory for other reasons."""
    allocated: list[int] = []

    def counted_memory(nbytes: int) -> mmap.mmap:
        allocated.append(nbytes)
        return fresh_memory(nbytes)

    monkeypatch.setattr(buffer_pool, "fresh_memory", counted_memory)
    return allocated


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_no_value_is_overwritten_by_a_later_one(tmp_path: Path, allocated: list[int], codec: str) -> None:
    """The training goes on to write into its one array, and the memory of each copy serves later steps."""
    options = HookOptions(
        tmp_path / "run", include_regex="t", save_config={"save_interval": 1}, flush_seconds=0, codec=codec
    )
    recorder = Recorder(options, Framework("none"), Rank())
    recorder.set_mode(ModeKeys.TRAIN)
    value = np.zeros(LARGE // 8, np.int64)
    for step in range(60):
        recorder.begin_step()
        for number in range(4):
            value[:] = step * 10 + number
            plan = recorder.planner.plan(f"t{number}")
            assert plan is not None
            recorder.record(plan, value)
    recorder.close()
    assert allocated.count(LARGE) < 4 * 60, "no memory was used again"
    trial = tensortrial.create_trial(tmp_path / "run")
    for number in range(4):
        found = trial.tensor(f"t{number}").values()
        assert len(found) == 60
        assert all((saved == step * 10 + number).all() for step, saved in found.items())


@pytest.mark.parametrize("nbytes", [100_000, 3 * LARGE])
def test_a_run_uses_the_memory_of_an_earlier_one(tmp_path: Path, allocated: list[int], nbytes: int) -> None:
    for name in ("earlier", "later"):
        allocated.clear()
        with tensortrial.Run(tmp_path / name) as run, run.step():
            run.save_tensor("t", np.full(nbytes, len(name), np.uint8))
    assert not allocated
    for name in ("earlier", "later"):
        with tensortrial.create_trial(tmp_path / name) as trial:
            assert (trial.tensor("t").value(0) == len(name)).all()


def test_a_batch_buffer_is_used_again_once_nobody_holds_it() -> None:
    buffers = BatchBuffers(1000)
    plan = Plan("t", (), raw=True)
    batch = ValueBatch(buffers.acquire(500))
    assert batch.add(plan.spec("uint8", (500,), 500), np.zeros(500, np.uint8), 0)
    memory = next(batch.page([])).obj
    second = buffers.acquire(500)
    assert second.memory is not memory
    assert ValueBatch(second).add(plan.spec("uint8", (900,), 900), np.ones(900, np.uint8), 0)
    assert b"".join(batch.page([])) == (500).to_bytes(4, "little") + bytes(500)
    del batch
    assert buffers.acquire(500).memory is memory
    assert buffers.acquire(996).memory is memory


def test_no_value_of_a_batch_is_overwritten_before_its_row_group_is_written(tmp_path: Path) -> None:
    """The writer has taken all of a step, and keeps it until the run is closed, while the next step is copied."""
    options = HookOptions(tmp_path / "run", include_regex="t", save_config={"save_interval": 1}, flush_seconds=3600)
    recorder = Recorder(options, Framework("none"), Rank())
    recorder.set_mode(ModeKeys.TRAIN)
    value = np.zeros(300 << 10, np.uint8)
    for step in range(4):
        recorder.begin_step()
        for number in range(20):
            value[:] = step * 20 + number
            plan = recorder.planner.plan(f"t{number}")
            assert plan is not None
            recorder.record(plan, value)
        recorder.end_step()
        wait_until(lambda: not queued_bytes(recorder))
    recorder.close()
    trial = tensortrial.create_trial(tmp_path / "run")
    for number in range(20):
        found = trial.tensor(f"t{number}").values()
        assert len(found) == 4
        assert all((saved == step * 20 + number).all() for step, saved in found.items())


def test_the_memory_of_a_value_that_was_read_is_used_again_once_no_array_refers_to_it() -> None:
    pool = BufferPool()
    first = pool.acquire_to_read(3_000_000)
    first[:] = 7
    place, part = first.ctypes.data, first.reshape(1000, 3000)[5:7, ::2]
    del first
    second = pool.acquire_to_read(3_000_000)
    assert second.ctypes.data != place
    second[:] = 8
    assert (part == 7).all()
    del part
    assert pool.acquire_to_read(2_500_000).ctypes.data == place


def test_memory_that_the_system_refuses_is_a_memory_error() -> None:
    with pytest.raises(MemoryError, match="cannot allocate"):
        BufferPool().acquire_to_read(1 << 60)
