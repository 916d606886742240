"""Index files that are missing, as the chain of the index files of a worker shows it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import tensortrial
from support.runs import TRAIN, Job, forge_file, index_file
from tensortrial import StepState
from tensortrial.errors import CorruptFile, MissingIndexFile, NoMoreData, StepUnavailable
from tensortrial.format.schema import FOOTER_PREVIOUS, MANIFEST
from tensortrial.maintenance.compaction import compact
from tensortrial.read.runs import Runs
from tensortrial.storage.base import Paths
from tensortrial.storage.local import LocalStorage

STEPS = 10


def write(path: Path, steps: int = STEPS, **job: object) -> None:
    with Job(path, flush_seconds=3600, **job) as writing:  # type: ignore[arg-type]
        for _ in range(steps):
            step = writing.begin(TRAIN)
            writing.put(step, {"w": np.full(3, step.global_step), "loss": float(step.global_step)}, closes=True)
            writing.flush()


def values_in(path: Path) -> list[float]:
    return [float(value) for value in pq.read_table(path)["scalar"].to_pylist()]


def named(path: Path) -> str:
    return pq.read_metadata(path).metadata[FOOTER_PREVIOUS].decode()


@pytest.mark.usefixtures("nothing_is_small")
class TestOneWorker:
    def test_each_index_file_names_the_one_before_it(self, tmp_path: Path) -> None:
        write(tmp_path, 3)
        assert named(index_file(tmp_path, 0)) == '""'
        for flush in (1, 2):
            assert named(index_file(tmp_path, flush)) == f'"{index_file(tmp_path, flush - 1).relative_to(tmp_path)}"'

    @pytest.mark.parametrize("flush", [0, 4, STEPS - 1])
    def test_a_missing_index_file_is_named(self, tmp_path: Path, flush: int) -> None:
        write(tmp_path)
        lost = index_file(tmp_path, flush)
        lost.unlink()
        trial = tensortrial.create_trial(tmp_path)
        (error,) = trial.damaged.values()
        assert isinstance(error, MissingIndexFile)
        assert error.path == str(lost.relative_to(tmp_path))
        assert trial.steps() == [step for step in range(STEPS) if step != flush]
        assert trial.has_passed_step(flush) is StepState.UNAVAILABLE
        assert trial.has_passed_step(flush, TRAIN) is StepState.UNAVAILABLE
        for mode in (tensortrial.modes.GLOBAL, TRAIN):
            with pytest.raises((StepUnavailable, NoMoreData), match=error.path):
                trial.wait_for_steps([flush], mode)
            with pytest.raises((StepUnavailable, NoMoreData), match=error.path):
                trial.tensor("w").value(flush, mode=mode)

    @pytest.mark.parametrize("is_last", [False, True])
    def test_a_missing_file_that_had_saved_a_step_again_is_named(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, is_last: bool
    ) -> None:
        with tensortrial.Run(tmp_path, flush_seconds=0) as run:
            for step, value in ((0, 0), (1, 1), (2, 2), (1, 100), *(() if is_last else ((3, 3), (4, 4)))):
                run.log({"x": value}, step=step)
                run.flush()
        (lost,) = (path for path in tmp_path.glob("index/*/*/*.parquet") if values_in(path) == [100.0])
        lost.unlink()
        trial = tensortrial.create_trial(tmp_path)
        assert trial.tensor("x").value(1) == 1
        assert list(trial.damaged) == [str(lost.relative_to(tmp_path))]
        path = lost.relative_to(tmp_path)
        assert f"{path}: it is missing, with its steps and newer rows of earlier ones" in caplog.text
        assert not trial.verify().is_whole

    def test_a_step_that_was_skipped_names_no_file(self, tmp_path: Path) -> None:
        with Job(tmp_path, flush_seconds=3600) as job:
            for _ in range(4):
                job.publish({"loss": 1.0})
                job.skip()
        index_file(tmp_path, 1).unlink()
        trial = tensortrial.create_trial(tmp_path)
        with pytest.raises(StepUnavailable, match="00000001"):
            trial.wait_for_steps([1])
        with pytest.raises(StepUnavailable, match=r"will not be$"):
            trial.wait_for_steps([5])

    def test_a_missing_folder_is_one_missing_file(self, tmp_path: Path) -> None:
        write(tmp_path, 40, steps_per_directory=10)
        lost = tmp_path / "index/worker=worker_0/step=000000000010"
        shutil.rmtree(lost)
        trial = tensortrial.create_trial(tmp_path)
        assert list(trial.damaged) == [str((lost / "00000019.parquet").relative_to(tmp_path))]
        for step in (10, 15, 19):
            with pytest.raises(StepUnavailable, match="00000019"):
                trial.wait_for_steps([step])

    def test_a_restored_file_is_read_at_the_next_refresh(self, tmp_path: Path) -> None:
        write(tmp_path)
        lost = [index_file(tmp_path, 4), index_file(tmp_path, STEPS - 1)]
        for path in lost:
            path.rename(path.with_suffix(".aside"))
        trial = tensortrial.create_trial(tmp_path)
        assert len(trial.damaged) == 2
        for path in lost:
            path.with_suffix(".aside").rename(path)
        trial.refresh()
        assert trial.steps() == list(range(STEPS))
        assert trial.damaged == {}

    def test_a_file_that_disappears_while_the_run_grows_is_noticed_by_a_later_reader(self, tmp_path: Path) -> None:
        job = Job(tmp_path, flush_seconds=3600)
        trial = None
        for step in range(6):
            job.publish({"loss": float(step)})
            if step == 3:
                index_file(tmp_path, 2).unlink()
                trial = tensortrial.create_trial(tmp_path)
                assert trial.steps() == [0, 1, 3]
        assert trial is not None
        assert trial.steps() == [0, 1, 3, 4, 5]
        assert list(trial.damaged) == ["index/worker=worker_0/step=000000000000/00000002.parquet"]
        job.close()

    def test_flushes_that_published_no_rows_break_no_chain(self, tmp_path: Path) -> None:
        with Job(tmp_path, flush_seconds=0, flush_bytes=1) as job:
            for _ in range(3):
                step = job.begin()
                for number in range(4):
                    # Each value is a flush, and only the last one has rows.
                    job.put(step, {f"w{number}": np.zeros(8)}, closes=number == 3)
        assert len(list(tmp_path.glob("index/*/*/*.parquet"))) == 3
        assert not index_files_in_a_row(tmp_path)
        assert tensortrial.create_trial(tmp_path).damaged == {}

    def test_a_resumed_session_continues_the_chain(self, tmp_path: Path) -> None:
        write(tmp_path, 3)
        compact(tmp_path, delete_older_than=0)
        write(tmp_path, 3, resume=True)
        assert named(index_file(tmp_path, 3)) == '"index/worker=worker_0/step=000000000000/00000000-00000002.parquet"'
        trial = tensortrial.create_trial(tmp_path)
        assert trial.steps() == list(range(6))
        assert trial.damaged == {}
        compact(tmp_path, delete_older_than=0)
        assert tensortrial.create_trial(tmp_path).damaged == {}
        assert trial.damaged == {}

    def test_compaction_keeps_the_hole_visible(self, tmp_path: Path) -> None:
        write(tmp_path)
        lost = index_file(tmp_path, 4)
        lost.unlink()
        done = compact(tmp_path, delete_older_than=0)
        assert isinstance(done.damaged[str(lost.relative_to(tmp_path))], MissingIndexFile)
        assert {path.name for path in lost.parent.iterdir()} == {
            "00000000-00000003.parquet",
            f"00000005-{STEPS - 1:08d}.parquet",
        }
        trial = tensortrial.create_trial(tmp_path)
        assert list(trial.damaged) == [str(lost.relative_to(tmp_path))]
        assert trial.steps() == [step for step in range(STEPS) if step != 4]

    def test_a_missing_compacted_file_is_noticed(self, tmp_path: Path) -> None:
        write(tmp_path, 30, steps_per_directory=10)
        compact(tmp_path, delete_older_than=0)
        lost = next(tmp_path.glob("index/*/step=000000000010/*.parquet"))
        lost.unlink()
        trial = tensortrial.create_trial(tmp_path)
        assert list(trial.damaged) == ["index/worker=worker_0/step=000000000010/00000019.parquet"]
        with pytest.raises(StepUnavailable, match="00000019"):
            trial.wait_for_steps([12])

    @pytest.mark.parametrize(
        "previous",
        [
            '"index/worker=worker_1/step=000000000000/00000000.parquet"',
            '"index/worker=worker_0/step=000000000000/00000003.parquet"',
            '"index/worker=worker_0/../00000000.parquet"',
            '"../00000000.parquet"',
            "7",
            "[",
            None,
        ],
    )
    def test_a_name_that_cannot_be_the_file_before_is_damage(self, tmp_path: Path, previous: str | None) -> None:
        write(tmp_path, 5)
        path = index_file(tmp_path, 3)
        forge_previous(tmp_path, path, previous)
        trial = tensortrial.create_trial(tmp_path)
        assert isinstance(trial.damaged[str(path.relative_to(tmp_path))], CorruptFile)
        assert trial.steps() == [0, 1, 2, 4]


def test_a_small_run_that_was_merged_as_it_closed_misses_nothing(tmp_path: Path) -> None:
    write(tmp_path)
    assert list(tmp_path.glob("index/*/*/00000000-*.parquet"))
    assert tensortrial.create_trial(tmp_path).damaged == {}


def index_files_in_a_row(run: Path) -> bool:
    numbers = sorted(int(path.stem) for path in run.glob("index/*/*/*.parquet"))
    return numbers == list(range(len(numbers)))


def forge_previous(run: Path, path: Path, previous: str | None) -> None:
    """Write an index file again with another text in the place of the file before it, or without one."""
    footer = dict(pq.read_metadata(path).metadata)
    del footer[FOOTER_PREVIOUS]
    if previous is not None:
        footer[FOOTER_PREVIOUS] = previous.encode()
    forge_file(run, path, pq.ParquetFile(path).read().replace_schema_metadata(footer))


@pytest.mark.usefixtures("nothing_is_small")
class TestManyRuns:
    @pytest.mark.parametrize("flush", [0, 4, STEPS - 1])
    def test_an_index_file_that_is_missing_in_one_of_them_is_named(self, tmp_path: Path, flush: int) -> None:
        write(tmp_path / "a")
        write(tmp_path / "b")
        lost = index_file(tmp_path / "b", flush)
        lost.unlink()
        opened = tensortrial.open_runs(tmp_path / "*")
        assert list(opened.damaged) == [str(lost)]
        assert isinstance(opened.damaged[str(lost)], MissingIndexFile)
        counted = "select run, count(distinct global_step) from tensors group by run order by run"
        assert opened.sql(counted).fetchall() == [("a", STEPS), ("b", STEPS - 1)]

    def test_whole_compacted_and_live_runs_miss_nothing(self, tmp_path: Path) -> None:
        for name in "abc":
            write(tmp_path / name)
        compact(tmp_path / "b", delete_older_than=0)
        (tmp_path / "c" / "end" / "worker_0.json").unlink()
        assert tensortrial.open_runs(tmp_path / "*").damaged == {}

    def test_a_file_that_is_compacted_between_two_listings_is_not_missing(self, tmp_path: Path) -> None:
        write(tmp_path)
        (tmp_path / MANIFEST).unlink(missing_ok=True)
        lost = index_file(tmp_path, 4)
        content = lost.read_bytes()
        lost.unlink()
        listed = []

        class Restored(LocalStorage):
            def _list_after(self, folder: str, after: str) -> Paths:
                listed.append(folder)
                if len(listed) == 3:  # the first two find a gap
                    lost.write_bytes(content)
                return super()._list_after(folder, after)

        assert Runs([Restored(str(tmp_path))]).damaged == {}
        assert len(listed) >= 3
