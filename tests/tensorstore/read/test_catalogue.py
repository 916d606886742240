"""The catalogue: what a refresh reads, and what damage does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tensortrial
from support.limits import set_limits
from support.runs import Job, forge_file
from tensortrial.errors import (
    CorruptFile,
    MissingChunk,
    StepNotYetAvailable,
    StepUnavailable,
    StorageError,
    UnknownFormat,
)
from tensortrial.read.step_states import StepState
from tensortrial.read.trial import Trial
from tensortrial.statistics.digest import digest_header, digest_of
from tensortrial.storage.base import Paths, Tails
from tensortrial.storage.local import LocalStorage


class CountingStorage(LocalStorage):
    """Counts what is read of each file."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.reads: Counter[str] = Counter()

    def read(self, path: str) -> bytes:
        self.reads[path] += 1
        return super().read(path)

    def read_tails(self, paths: Sequence[str], length: int) -> Tails:
        self.reads.update(paths)
        return super().read_tails(paths, length)


def trial_of(storage: LocalStorage) -> Trial:
    """Open a run through a storage that a test watches."""
    return Trial(storage, tensortrial.create_trial(storage.url).info, "t")


# ---------------------------------------------------------------------------------------------------------- refresh


def test_a_refresh_reads_only_new_files(tmp_path: Path) -> None:
    job = Job(tmp_path, flush_seconds=3600)
    storage = CountingStorage(str(tmp_path))
    for _ in range(3):
        job.publish({"a": np.zeros(2), "b": 1.0})
    trial = trial_of(storage)
    assert len([path for path in storage.reads if path.startswith("index/")]) == 3
    for number in range(3, 6):
        storage.reads.clear()
        job.publish({"a": np.zeros(2), "b": 1.0})
        assert trial.steps()[-1] == number
        index_reads = [path for path in storage.reads if path.startswith("index/")]
        assert index_reads == [f"index/worker=worker_0/step=000000000000/0000000{number}.parquet"]
        storage.reads.clear()
        assert (trial.steps(), trial.tensor_names()) == ([*range(number + 1)], ["a", "b"])
        assert not [path for path in storage.reads if path.startswith("index/")]
    job.close()


def test_rows_that_were_read_stay_read_when_the_run_grows(tmp_path: Path) -> None:
    job, storage = Job(tmp_path, flush_seconds=3600), CountingStorage(str(tmp_path))
    job.publish({"a": 0.0})
    trial = trial_of(storage)
    for number in range(1, 4):
        assert trial.tensor("a").values() == {step: step for step in range(number)}
        storage.reads.clear()
        job.step({"a": float(number)})
        assert trial.tensor("a").values() == {step: step for step in range(number + 1)}
        read = {Path(path).name for path in storage.reads if path.startswith("index/")}
        assert read == {f"{number:08d}.parquet"}
    job.close()


# ----------------------------------------------------------------------------------------------------------- damage


def index_files(run: Path) -> list[Path]:
    return sorted(run.glob("index/*/*/*.parquet"))


def test_an_index_file_of_a_later_format_is_refused(run: Path) -> None:
    """To leave it out would be to show a run that never was."""
    later = index_files(run)[1]
    table = pq.ParquetFile(later).read()
    forge_file(run, later, table.replace_schema_metadata({b"tensortrial.format": b"99"}))
    with pytest.raises(UnknownFormat, match=f"{later.name}.*format 99.*upgrade"):
        tensortrial.create_trial(run)


class Flaky(LocalStorage):
    """A storage that cannot read one index file while it is broken."""

    broken = True

    def read_tails(self, paths: Sequence[str], length: int) -> Tails:
        found = super().read_tails(paths, length)
        pairs = zip(paths, found, strict=True)
        return [StorageError(path, "no") if self.broken and self._is_bad(path) else tail for path, tail in pairs]

    def size(self, path: str) -> int:
        if self.broken and self._is_bad(path):
            raise StorageError(path, "no")
        return super().size(path)

    def _is_bad(self, path: str) -> bool:
        return path.startswith("index/") and "01.p" in path


def test_a_file_that_cannot_be_read_now_is_read_later(run: Path) -> None:
    storage = Flaky(str(run))
    trial = trial_of(storage)
    assert trial.steps() == [0, 1, 4, 5]
    assert len(trial.damaged) == 1
    storage.broken = False
    trial.refresh()
    assert trial.steps() == [0, 1, 2, 3, 4, 5]
    assert not trial.damaged


def test_steps_of_a_file_that_cannot_be_read_now_may_come(run: Path) -> None:
    storage = Flaky(str(run))
    trial = trial_of(storage)
    assert not trial.loaded_all_steps
    assert [trial.has_passed_step(step) for step in (1, 2)] == [StepState.AVAILABLE, StepState.NOT_YET_AVAILABLE]
    with pytest.raises(StepNotYetAvailable, match=r"00000001\.parquet: no"):
        trial.mode(2)
    with pytest.raises(StepNotYetAvailable, match=r"00000001\.parquet: no"):
        trial.tensor("w").value(2)
    with pytest.raises(StepNotYetAvailable):
        trial.wait_for_steps([2], timeout=0)
    assert trial.has_passed_step(6) is StepState.UNAVAILABLE
    storage.broken = False
    trial.wait_for_steps([2], timeout=60)
    assert trial.loaded_all_steps


def test_a_file_that_cannot_be_read_for_long_is_taken_for_lost(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = trial_of(Flaky(str(run)))
    set_limits(monkeypatch, seconds_until_a_gap_is_damage=0.0)
    assert trial.loaded_all_steps
    with pytest.raises(StepUnavailable, match=r"lost or damaged may have held it .*00000001\.parquet: no"):
        trial.wait_for_steps([2])


def test_sql_is_refused_while_a_file_cannot_be_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Flaky(str(run))
    storage.broken = False
    trial = trial_of(storage)
    storage.broken = True
    count = "select count(distinct global_step) from tensors"
    with pytest.raises(StorageError, match=r"00000001\.parquet: no"):
        trial.sql(count)
    set_limits(monkeypatch, seconds_until_a_gap_is_damage=0.0)
    assert trial.sql(count).fetchall() == [(4,)]
    assert len(trial.damaged) == 1
    storage.broken = False
    assert trial.sql(count).fetchall() == [(6,)]
    assert not trial.damaged


def test_a_refresh_that_fails_is_made_up_for(run: Path) -> None:
    class Failing(LocalStorage):
        broken = False

        def _list_after(self, folder: str, after: str) -> Paths:
            if self.broken:
                raise StorageError(folder, "no")
            return super()._list_after(folder, after)

    storage = Failing(str(run))
    (run / "end" / "worker_0.json").unlink()
    storage.broken = True
    with pytest.raises(StorageError):
        trial_of(storage)
    storage.broken = False
    assert trial_of(storage).steps(show_incomplete_steps=True) == [*range(6)]


def test_what_was_listed_before_a_listing_failed_is_kept(tmp_path: Path) -> None:
    class Failing(LocalStorage):
        broken = ""

        def _list_after(self, folder: str, after: str) -> Paths:
            if self.broken and self.broken in folder:
                raise StorageError(folder, "no")
            return super()._list_after(folder, after)

    jobs = [Job(tmp_path, f"worker_{rank}", 2) for rank in range(2)]
    for job in jobs:
        job.publish({"a": [0]})
    storage = Failing(str(tmp_path))
    trial = trial_of(storage)
    for job in jobs:
        job.publish({"a": [1]})
    storage.broken = "worker_1"
    for _ in range(2):
        with pytest.raises(StorageError):
            trial.steps()
    storage.broken = ""
    assert trial.steps() == [0, 1]
    assert sorted(trial.workers()) == ["worker_0", "worker_1"]
    for job in jobs:
        job.close()


def chunk_of(run: Path, step: int) -> Path:
    rows = tensortrial.create_trial(run).sql("select global_step, chunk from tensors where name = 'w'").fetchall()
    return run / dict(rows)[step]


def test_a_missing_chunk_is_named(run: Path) -> None:
    chunk = chunk_of(run, 2)
    chunk.unlink()
    trial = tensortrial.create_trial(run)
    with pytest.raises(MissingChunk, match="step 2") as caught:
        trial.tensor("w").value(2)
    assert caught.value.path == str(chunk.relative_to(run))
    assert isinstance(caught.value, FileNotFoundError)
    # What the index itself holds is there.
    assert trial.tensor("loss").value(2) == 1
    assert trial.tensor("w").reduction_value(2, "min") == 2
    assert trial.tensor("w").value(0).tolist() == [0, 1, 2, 3]
    assert trial.sql("select count(*) from tensor_values").fetchall() == [(5,)]
    assert isinstance(trial.damaged[caught.value.path], MissingChunk)


@pytest.mark.parametrize("damage", ["torn", "empty", "foreign"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_damaged_chunk_is_named(tmp_path: Path, damage: str, codec: str) -> None:
    with Job(tmp_path, codec=codec, flush_seconds=3600) as job:
        job.publish({"w": np.random.default_rng(0).normal(size=1000)})
        job.step({"w": np.ones(3)})
    chunk = chunk_of(tmp_path, 0)
    data = chunk.read_bytes()
    chunk.write_bytes({"torn": data[:1000], "empty": b"", "foreign": b"\x01" * len(data)}[damage])
    trial = tensortrial.create_trial(tmp_path)
    with pytest.raises(CorruptFile) as caught:
        trial.tensor("w").value(0)
    assert caught.value.path == str(chunk.relative_to(tmp_path))
    assert trial.tensor("w").value(1).tolist() == [1, 1, 1]
    assert trial.sql("select count(*) from tensor_values").fetchall() == [(1,)]


FORGED: dict[str, dict[str, Any]] = {
    "a chunk outside": {"chunk": "../../../../etc/passwd"},
    "an absolute chunk": {"chunk": "/etc/passwd"},
    "a chunk in another folder": {"chunk": "collections/worker_0.json"},
    "a huge value": {"nbytes": 1 << 50, "shape": [1 << 47]},
    "a negative size": {"nbytes": -5},
    "a negative offset": {"offset": -5},
    "another offset": {"offset": 100},
    "an offset before the pages": {"offset": 3},
    "an offset past the end": {"offset": 1 << 40},
    "another shape": {"shape": [5]},
    "a negative shape": {"shape": [-1]},
    "a negative shape of elements without bytes": {
        "shape": [-1],
        "dtype": "V0",
        "digest": digest_of(np.arange(4.0).tobytes(), digest_header("V0", (-1,))),
    },
    "another dtype": {"dtype": "int8"},
    "an unknown dtype": {"dtype": "float17"},
    "objects": {"dtype": "object"},
    "no place": {"offset": None, "row_group": None},
    "another row group": {"offset": None, "row_group": 99},
    "another row": {"offset": None, "row": 1 << 30},
    "too many parts": {"parts": 1 << 30},
    "a scalar of another shape": {"scalar": 1.0, "shape": [1 << 40]},
    "a scalar of no number": {"scalar": 1.0, "shape": [], "dtype": "datetime64[ns]"},
    "an infinite int": {"scalar": float("inf"), "shape": [], "dtype": "int8"},
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED)
def test_a_forged_index_row_is_named_and_reads_nothing_else(tmp_path: Path, change: dict[str, Any]) -> None:
    with Job(tmp_path) as job:
        job.step({"w": np.arange(4.0), "v": np.ones(3)})
    (path,) = index_files(tmp_path)
    table = pq.ParquetFile(path).read()
    rows = table.to_pylist()
    rows[0].update(change)
    forge_file(tmp_path, path, pa.Table.from_pylist(rows, table.schema))
    trial = tensortrial.create_trial(tmp_path)
    with pytest.raises((CorruptFile, MissingChunk)):
        trial.tensor("w").value(0)
    with pytest.raises((CorruptFile, MissingChunk)):
        trial.values(["v", "w"])
    assert trial.tensor("v").value(0).tolist() == [1, 1, 1]
    values = trial.sql("select value from tensor_values where name = 'v'").fetchall()
    assert values == [(np.ones(3).tobytes(),)]
