"""Raw values that compaction puts together: the same values, in few files, and nothing lost or left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from night.forks import in_child

import tensortrial
from support.file_access import before
from support.limits import set_limits
from support.runs import EVAL, TRAIN, Job
from tensortrial.errors import CorruptFile, MissingChunk
from tensortrial.format.chunk_merge import flush_range_of_merged
from tensortrial.format.schema import FlushRange
from tensortrial.maintenance.compaction import compact
from tensortrial.read.trial import Trial, run_reader_of

pytestmark = pytest.mark.usefixtures("nothing_is_small")


def write(folder: Path, flushes: int, **how: Any) -> None:
    with Job(folder, flush_seconds=3600, **how) as job:
        _flush(job, flushes)


def _flush(job: Job, flushes: int) -> None:
    for _ in range(flushes):
        number = job.next_global_step
        values = {"w": np.arange(6.0).reshape(2, 3) + number, "b": np.full(3, number, np.int16), "loss": number / 2}
        job.publish(values, mode=EVAL if number % 5 == 4 else TRAIN)


def chunks(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.glob("tensors/*/*/*/*.parquet"))


def values_of(run: Path | Trial) -> dict[str, list[Any]]:
    trial = run if isinstance(run, Trial) else tensortrial.create_trial(run)
    values = trial.values(trial.tensor_names())
    return {
        name: [(step, array.dtype, array.tolist()) for step, array in each.items()] for name, each in values.items()
    }


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_chunks_become_one_for_each_folder(tmp_path: Path, codec: str) -> None:
    write(tmp_path, 20, codec=codec)
    before = values_of(tmp_path)
    assert len(chunks(tmp_path)) == 20
    done = compact(tmp_path, delete_older_than=0)
    assert (done.chunks_merged, done.chunks_made) == (20, 2)
    assert [flush_range_of_merged(chunk) for chunk in chunks(tmp_path)] == [FlushRange(0, 19)] * 2
    trial = tensortrial.create_trial(tmp_path)
    assert values_of(trial) == before
    rows = "select name, mode_step, value from tensor_values where mode = 'EVAL' order by all"
    assert trial.sql(rows).fetchall()[:2] == [
        ("b", step, np.full(3, 5 * step + 4, np.int16).tobytes()) for step in range(2)
    ]
    again = compact(tmp_path, delete_older_than=0)
    assert (again.chunks_merged, again.chunks_made) == (0, 0)


def test_values_of_one_tensor_lie_one_after_another(tmp_path: Path) -> None:
    write(tmp_path, 20)
    compact(tmp_path, delete_older_than=0)
    trial = tensortrial.create_trial(tmp_path)
    query = 'select "offset" from tensors where name = $name and mode = $mode order by global_step'
    for name in ("w", "b"):
        offsets = [at for (at,) in trial.sql(query, {"name": name, "mode": "TRAIN"}).fetchall()]
        assert set(np.diff(offsets)) == {52 if name == "w" else 10}


def test_steps_are_laid_out_in_tiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, bytes_of_a_tile=6 * 8 * 5)
    with Job(tmp_path, flush_seconds=3600) as job:
        for _ in range(12):
            job.publish({"w": np.zeros(6), "v": np.ones(6)})
    compact(tmp_path, delete_older_than=0)
    query = 'select name, global_step from tensors order by "offset"'
    found = tensortrial.create_trial(tmp_path).sql(query).fetchall()
    assert found[:6] == [(name, step) for name in "vw" for step in range(3)]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_values_in_several_parts(tmp_path: Path, codec: str) -> None:
    write(tmp_path, 8, part_bytes=20, codec=codec)
    before = values_of(tmp_path)
    assert compact(tmp_path, delete_older_than=0).chunks_made == 1
    assert values_of(tmp_path) == before


def test_no_chunk_gets_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, bytes_of_a_merged_chunk=200, bytes_merged_at_once=100)
    write(tmp_path, 20)
    before = values_of(tmp_path)
    compact(tmp_path, delete_older_than=0)
    assert len(chunks(tmp_path)) == 4 + 1
    assert values_of(tmp_path) == before


def test_large_chunks_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 8)
    set_limits(monkeypatch, bytes_of_a_chunk_that_stays=10)
    before = chunks(tmp_path)
    assert compact(tmp_path, delete_older_than=0).chunks_made == 0
    assert chunks(tmp_path) == before


def test_a_chunk_with_values_of_a_step_of_a_later_flush_stays(tmp_path: Path) -> None:
    with Job(tmp_path, flush_seconds=3600) as job:
        _flush(job, 63)
        step = job.begin(TRAIN)
        job.put(step, {"early": np.ones(4)})
        job.step({"other": np.ones(2)}, TRAIN)
        job.flush()  # flush 63 holds 'early', whose row comes with flush 64
        job.put(step, {"late": np.ones(4)}, closes=True)
        job.flush()
        before = values_of(tmp_path)
        compact(tmp_path, delete_older_than=0)
        assert sum("00000063.parquet" in chunk for chunk in chunks(tmp_path)) == 1
        assert values_of(tmp_path) == before
        count = "select count(*) from tensor_values"
        rows = tensortrial.create_trial(tmp_path).sql(count).fetchall()
    compact(tmp_path, delete_older_than=0)
    trial = tensortrial.create_trial(tmp_path)
    assert values_of(trial) == before
    assert trial.sql(count).fetchall() == rows
    assert all(flush_range_of_merged(chunk) for chunk in chunks(tmp_path))


@pytest.mark.parametrize("damage", ["missing", "truncated", "values"])
def test_a_bad_chunk_is_named_and_left(tmp_path: Path, damage: str) -> None:
    write(tmp_path, 8)
    bad = tmp_path / "tensors/mode=TRAIN/step=000000000000/worker=worker_0/00000003.parquet"
    before = values_of(tmp_path)
    if damage == "missing":
        bad.unlink()
    else:
        data = bad.read_bytes()
        length = (48).to_bytes(4, "little") + np.float64(3).tobytes()
        bad.write_bytes(data[:-30] if damage == "truncated" else data.replace(length, b"y" * 12))
    done = compact(tmp_path, delete_older_than=0)
    assert list(done.damaged) == [str(bad.relative_to(tmp_path))]
    assert done.chunks_merged == 6
    assert bad.exists() == (damage != "missing")
    trial = tensortrial.create_trial(tmp_path)
    if damage == "truncated":
        assert trial.tensor("w").value(3).tolist() == before["w"][3][2]  # its bytes are undamaged
    else:
        with pytest.raises(MissingChunk if damage == "missing" else CorruptFile, match=bad.name):
            trial.tensor("w").value(3)
    assert trial.tensor("w").value(5).tolist() == before["w"][5][2]


def test_rows_that_were_read_before_find_their_values(tmp_path: Path) -> None:
    write(tmp_path, 20)
    trial = tensortrial.create_trial(tmp_path)
    with tensortrial.no_refresh(trial):
        trial.tensor("w").values()
        reader = run_reader_of(trial)
        held = [row for rows in reader.rows_at_step(7).values() for row in rows]
        compact(tmp_path, delete_older_than=0)
        assert trial.tensor("w").value(5).tolist() == [[5, 6, 7], [8, 9, 10]]
        assert [array.tolist() for array in reader.read(held)] == [
            [[7, 8, 9], [10, 11, 12]],
            [7] * 3,
            3.5,
        ]


def test_files_that_a_killed_compaction_left_are_deleted(tmp_path: Path) -> None:
    write(tmp_path, 20)

    def compact_until_killed() -> None:
        with before(["create"], tmp_path / "index", lambda: os.kill(os.getpid(), signal.SIGKILL)):
            compact(tmp_path, delete_older_than=0)

    assert in_child(compact_until_killed) == -signal.SIGKILL
    assert len(chunks(tmp_path)) == 22
    compact(tmp_path, delete_older_than=0)
    assert len(chunks(tmp_path)) == 2


def test_a_foreign_index_cannot_have_chunks_of_others_deleted(tmp_path: Path) -> None:
    """The index of one worker that names the chunks of another."""
    with (
        Job(tmp_path, "worker_0", 2, flush_seconds=3600) as one,
        Job(tmp_path, "worker_1", 2, flush_seconds=3600) as two,
    ):
        _flush(one, 5)
        _flush(two, 5)
    theirs = tmp_path / "index/worker=worker_1/step=000000000000"
    for path in (tmp_path / "index/worker=worker_0/step=000000000000").iterdir():
        (theirs / path.name).write_bytes(path.read_bytes())
    for path in (tmp_path / "index/worker=worker_0").glob("*/*"):
        path.unlink()
    compact(tmp_path, delete_older_than=0)
    assert len([chunk for chunk in chunks(tmp_path) if "worker_0" in chunk]) == 5


def test_a_small_run_closes_with_few_chunks(tmp_path: Path) -> None:
    with Job(tmp_path, flush_seconds=3600) as job:
        _flush(job, 20)
        trial = tensortrial.create_trial(tmp_path)
        before = values_of(trial)
    fresh = tensortrial.create_trial(tmp_path)
    assert values_of(trial) == values_of(fresh) == before
    named = fresh.sql("select distinct chunk from tensors where chunk is not null").fetchall()
    assert len(named) == 2
    assert len(chunks(tmp_path)) == 22  # what others may be reading stays
    compact(tmp_path, delete_older_than=0)
    assert [(chunk,) for chunk in chunks(tmp_path)] == sorted(named)
    assert values_of(trial) == before


def test_a_small_run_of_many_bytes_is_left_to_compact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, bytes_merged_at_close=1000)
    write(tmp_path, 20)
    assert len(chunks(tmp_path)) == 20
    assert compact(tmp_path, delete_older_than=0).chunks_made == 2


@settings(max_examples=8, deadline=None)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["a", "b", "ü/x"]),
            st.integers(0, 3).flatmap(lambda size: st.binary(min_size=size * 40, max_size=size * 40)),
            min_size=1,
        ),
        min_size=2,
        max_size=12,
    ),
    st.sampled_from(["none", "zstd"]),
    st.sampled_from([64, 1 << 30]),
)
def test_any_values_stay_what_they_are(
    tmp_path_factory: pytest.TempPathFactory, steps: list[dict[str, bytes]], codec: str, part_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("run")
    arrays = [{name: np.frombuffer(data, np.uint8) for name, data in step.items()} for step in steps]
    with Job(folder, flush_seconds=3600, codec=codec, part_bytes=part_bytes) as job:
        for step in arrays:
            job.publish(step)
    compact(folder, delete_older_than=0)
    trial = tensortrial.create_trial(folder)
    for number, step in enumerate(steps):
        assert {name: trial.tensor(name).value(number).tobytes() for name in trial.tensor_names(step=number)} == step
