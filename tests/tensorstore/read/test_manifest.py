"""Runs that are opened by their manifest: what it answers, and what makes it stale."""

from __future__ import annotations

import secrets
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from support import warm
from support.internals import is_opened_by_manifest
from support.limits import set_limits
from support.plain_hook import WorkerHook
from support.servers import ObjectStore
from tensortrial import create_trial, repair, verify
from tensortrial.format.schema import MANIFEST, RUN_FILE, RunInfo
from tensortrial.maintenance.compaction import compact
from tensortrial.read.trial import Trial
from tensortrial.snapshot.manifest import Manifest, read_manifest, write_manifest
from tensortrial.storage.open import Storage, open_storage

pytestmark = pytest.mark.usefixtures("nothing_is_small")

QUERY = "select global_step, name, worker from tensors order by all"


class CountingHook(WorkerHook):
    """A hook of a worker with the last value that it saved."""

    def __init__(self, out_dir: str, rank: int = 0, size: int = 1, **options: Any) -> None:
        super().__init__(out_dir, rank, size, **options)
        self.saved = 100 * rank


class Run:
    """A run in an object store."""

    def __init__(self, url: str, **storage_options: Any) -> None:
        self.url, self.options = url, storage_options
        self.storage = open_storage(url, storage_options)

    def hook(self, rank: int = 0, size: int = 1, **options: Any) -> CountingHook:
        return CountingHook(self.url, rank, size, storage_options=self.options, **options)

    def write(self, steps: int = 6, **options: Any) -> None:
        hook = self.hook(**options)
        self.save(hook, steps)
        hook.close()

    def save(self, hook: CountingHook, steps: int) -> None:
        for _ in range(steps):
            with hook.step():
                hook.saved += 1
                hook.save_tensor("w", np.full(8, hook.saved, np.float32))
                hook.save_scalar("loss", hook.saved)
            hook.flush()

    def open(self) -> Trial:
        return create_trial(self.url, storage_options=self.options)

    @property
    def manifest(self) -> bytes | None:
        try:
            return self.storage.read(MANIFEST)
        except FileNotFoundError:
            return None

    def is_opened_by_manifest(self) -> bool:
        return is_opened_by_manifest(self.open())


def answers(trial: Trial) -> dict[str, Any]:
    """Return what a trial says of everything in it."""
    steps = trial.steps()
    return {
        "names": trial.tensor_names(),
        "steps": steps,
        "modes": trial.modes(),
        "workers": trial.workers(),
        "num_workers": trial.num_workers,
        "passed": [trial.has_passed_step(step) for step in (0, 3, 100)],
        "collections": [(each.name, each.include_regex) for each in trial.collections().values()],
        "ended": trial.loaded_all_steps,
        "w": {step: trial.tensor("w").value(step).tolist() for step in steps},
        "loss": {step: trial.tensor("loss").value(step) for step in steps},
        "sql": trial.sql(QUERY).fetchall(),
        "damaged": sorted(trial.damaged),
    }


@pytest.fixture
def run() -> Run:
    return Run(f"memory://{secrets.token_hex(6)}/run")


@pytest.fixture
def closed(run: Run) -> Run:
    run.write()
    assert run.manifest is not None
    return run


class TestAClosedRun:
    def test_it_answers_as_it_does_by_listing(self, closed: Run) -> None:
        trial = closed.open()
        assert is_opened_by_manifest(trial)
        found = answers(trial)
        closed.storage.remove(MANIFEST)
        assert not closed.is_opened_by_manifest()
        assert found == answers(closed.open())
        assert found["steps"] == [0, 1, 2, 3, 4, 5]
        assert found["damaged"] == []

    @pytest.mark.s3
    @pytest.mark.parametrize("ending", ["", "raise SystemExit(3)", "os.kill(os.getpid(), signal.SIGTERM)"])
    def test_a_process_that_ends_without_closing_writes_one(self, moto_s3: ObjectStore, ending: str) -> None:
        run = Run(f"{moto_s3.new_bucket()}/run", **moto_s3.storage_options)
        program = f"""
            import os, signal
            from support.plain_hook import Hook
            import pytest
            from support.limits import keep_index_files

            keep_index_files(pytest.MonkeyPatch())
            hook = Hook({run.url!r}, storage_options={run.options!r}, flush_seconds=3600)
            for step in range(4):
                with hook.step():
                    hook.save_tensor("w", [step])
                hook.flush()
            {ending}
        """
        assert warm.run(["-c", textwrap.dedent(program)], timeout=600).stderr == ""
        assert run.is_opened_by_manifest()
        assert run.open().steps() == [0, 1, 2, 3]

    def test_a_disk_needs_none_and_ignores_one(self, tmp_path: Path, closed: Run) -> None:
        run = Run(str(tmp_path / "run"))
        run.write(2)
        assert run.manifest is None
        assert not write_manifest(run.storage)
        run.storage.replace(MANIFEST, closed.manifest or b"")
        assert answers(run.open())["steps"] == [0, 1]

    def test_a_copy_of_the_run_has_a_manifest_too(self, closed: Run) -> None:
        copy = Run(f"{closed.url}-copy")
        fsspec.filesystem("memory").copy(closed.url, copy.url, recursive=True)
        assert copy.is_opened_by_manifest()
        assert answers(copy.open()) == answers(closed.open())

    def test_a_run_of_many_files_is_left_to_compact(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:

        set_limits(monkeypatch, files_of_a_manifest_at_close=5)
        run.write(6)
        assert run.manifest is None
        compact(run.url, delete_older_than=0)
        assert run.is_opened_by_manifest()

    def test_an_error_of_the_storage_leaves_the_run_closed(
        self, run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A file system in memory never fails."""
        from tensortrial.errors import StorageError
        from tensortrial.storage.fsspec import FsspecStorage

        replace = FsspecStorage.replace

        def refuse(storage: FsspecStorage, path: str, data: bytes | memoryview) -> None:
            if path == MANIFEST:
                raise StorageError(path, "the bucket is full")
            replace(storage, path, data)

        monkeypatch.setattr(FsspecStorage, "replace", refuse)
        run.write(2)
        assert "no manifest was written: manifest.parquet: the bucket is full" in caplog.text
        assert answers(run.open())["ended"]


class TestARunThatMayGoOn:
    def test_an_open_run_has_none(self, run: Run) -> None:
        hook = run.hook()
        run.save(hook, 2)
        assert not write_manifest(run.storage)
        hook.close()
        assert run.is_opened_by_manifest()

    def test_the_last_worker_writes_it(self, run: Run) -> None:
        hooks = [run.hook(rank, 3) for rank in range(3)]
        for hook in hooks:
            run.save(hook, 2)
        for hook in hooks:
            assert run.manifest is None
            hook.close()
        assert run.is_opened_by_manifest()
        assert run.open().workers() == ["worker_0", "worker_1", "worker_2"]

    def test_workers_that_close_at_once_write_a_whole_one(self, run: Run) -> None:
        hooks = [run.hook(rank, 4) for rank in range(4)]
        for hook in hooks:
            run.save(hook, 2)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(WorkerHook.close, hooks))
        assert run.is_opened_by_manifest()
        found = answers(run.open())
        run.storage.remove(MANIFEST)
        assert found == answers(run.open())

    def test_a_worker_that_never_began_leaves_none(self, run: Run) -> None:
        run.write(2, rank=0, size=2)
        assert run.manifest is None

    def test_a_killed_job_that_was_marked_as_ended_has_none(self, run: Run) -> None:
        hook = run.hook()
        run.save(hook, 2)
        run.open().mark_ended()
        assert run.open().loaded_all_steps
        assert not write_manifest(run.storage)  # the process may go on, as here
        run.save(hook, 1)
        assert run.open().steps() == [0, 1, 2]
        hook.close()

    def test_a_worker_that_was_marked_as_ended_may_go_on(self, run: Run) -> None:
        hook = run.hook()
        run.save(hook, 2)
        run.open().mark_ended(worker="worker_0")
        assert run.open().loaded_all_steps
        assert not write_manifest(run.storage)
        hook.close()

    def test_a_run_without_leases_has_none(self, closed: Run) -> None:
        closed.storage.remove(MANIFEST)
        for name in closed.storage.list("leases"):
            closed.storage.remove(f"leases/{name}")
        assert not write_manifest(closed.storage)

    def test_a_run_with_a_damaged_file_has_none(self, closed: Run) -> None:
        path = closed.storage.list_after("index/worker=worker_0")[2]
        closed.storage.replace(path, closed.storage.read(path)[:-9])
        assert not write_manifest(closed.storage)
        closed.storage.remove(path)
        assert not write_manifest(closed.storage)


class TestAStaleManifest:
    def test_a_resume_deletes_it_and_writes_a_new_one(self, closed: Run) -> None:
        hook = closed.hook(resume=True)
        closed.save(hook, 2)
        assert closed.manifest is None
        assert closed.open().steps()[:7] == [0, 1, 2, 3, 4, 5, 6]
        hook.close()
        assert closed.is_opened_by_manifest()
        assert closed.open().steps() == list(range(8))

    @pytest.mark.parametrize("close", [True, False])
    def test_one_that_a_resume_left_is_not_used(self, closed: Run, close: bool) -> None:
        before = closed.manifest or b""
        hook = closed.hook(resume=True)
        closed.save(hook, 2)
        if close:
            hook.close()
        closed.storage.replace(MANIFEST, before)  # as a release that knows no manifests would leave it
        assert not closed.is_opened_by_manifest()
        assert len(closed.open().steps(show_incomplete_steps=True)) == 8
        hook.close()

    def test_a_resume_that_dies_before_it_writes_leaves_the_run_readable(
        self, closed: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The process that holds a file system in memory cannot be killed."""
        before = answers(closed.open())
        from tensortrial.storage.fsspec import FsspecStorage

        class Killed(BaseException):
            pass

        def die(storage: FsspecStorage, path: str, data: bytes | memoryview) -> None:
            raise Killed

        hook = closed.hook(resume=True)
        with monkeypatch.context() as patch:
            patch.setattr(FsspecStorage, "replace", die)
            with pytest.raises(Killed):
                closed.save(hook, 1)
        assert closed.manifest is None
        assert not closed.is_opened_by_manifest()
        assert answers(closed.open()) == before

    def test_a_trial_that_was_opened_by_it_follows_a_resume(self, closed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        set_limits(monkeypatch, seconds_between_checks_of_an_ended_run=0.0)
        trial = closed.open()
        assert is_opened_by_manifest(trial)
        assert trial.steps() == list(range(6))
        hook = closed.hook(resume=True)
        closed.save(hook, 3)
        assert not trial.loaded_all_steps
        assert trial.steps(show_incomplete_steps=True) == list(range(9))
        hook.close()
        found = answers(trial)
        assert found == answers(closed.open())
        assert found["steps"] == list(range(9))

    def test_one_of_another_run_is_not_used(self, closed: Run) -> None:
        other = Run(f"{closed.url}-other")
        other.write(2)
        other.storage.replace(MANIFEST, closed.manifest or b"")
        assert not other.is_opened_by_manifest()
        assert answers(other.open())["steps"] == [0, 1]


class TestACompaction:
    def test_it_writes_a_manifest(self, closed: Run) -> None:
        before = answers(closed.open())
        old = closed.manifest
        compact(closed.url, delete_older_than=0)
        assert closed.manifest not in (None, old)
        assert closed.is_opened_by_manifest()
        assert answers(closed.open()) == before

    def test_a_manifest_that_names_deleted_files_is_seen_through(self, closed: Run) -> None:
        before, old = answers(closed.open()), closed.manifest or b""
        compact(closed.url, delete_older_than=0)
        closed.storage.replace(MANIFEST, old)  # as a release that knows no manifests would leave it
        for first in ("w", "sql", "all"):
            trial = closed.open()
            assert is_opened_by_manifest(trial)
            if first == "w":
                assert trial.tensor("w").value(3).tolist() == before["w"][3]
            elif first == "sql":
                assert trial.sql(QUERY).fetchall() == before["sql"]
            assert answers(trial) == before

    def test_a_reader_that_holds_the_manifest_goes_on(self, closed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        set_limits(monkeypatch, seconds_between_checks_of_an_ended_run=0.0)
        before = answers(closed.open())
        trial = closed.open()
        assert trial.tensor("w").value(1).tolist() == before["w"][1]
        compact(closed.url, delete_older_than=0)
        assert answers(trial) == before

    def test_of_a_run_that_goes_on_it_writes_none(self, run: Run) -> None:
        hook = run.hook()
        run.save(hook, 3)
        compact(run.url, delete_older_than=0)
        assert run.manifest is None
        hook.close()


class TestADamagedManifest:
    @pytest.fixture
    def damaged(self, closed: Run) -> Callable[[bytes], Run]:
        def damaged(data: bytes) -> Run:
            closed.storage.replace(MANIFEST, data)
            return closed

        return damaged

    @pytest.mark.parametrize("damage", ["empty", "cut", "foreign", "unsealed"])
    def test_the_run_is_opened_by_listing_and_the_file_is_named(
        self, closed: Run, damaged: Callable[[bytes], Run], damage: str
    ) -> None:
        before, data = answers(closed.open()), closed.manifest or b""
        index = closed.storage.read(closed.storage.list_after("index/worker=worker_0")[0])
        broken = {"empty": b"", "cut": data[:-20], "foreign": index, "unsealed": b"PAR1" + bytes(100) + b"PAR1"}
        run = damaged(broken[damage])
        assert not run.is_opened_by_manifest()
        assert answers(run.open()) == {**before, "damaged": [MANIFEST]}
        assert [each.path for each in run.open().verify().damaged] == [MANIFEST]

    def test_a_whole_one_is_verified(self, closed: Run) -> None:
        found = closed.open().verify()
        assert found.damaged == ()
        assert found.unnamed == ()

    def test_no_flipped_bit_is_read(self, closed: Run) -> None:
        data = closed.manifest or b""
        run = RunInfo.from_bytes(closed.storage.read(RUN_FILE), "")
        random = np.random.default_rng(0)
        positions = {*range(16), *range(8 * len(data) - 400, 8 * len(data)), *random.integers(0, 8 * len(data), 400)}
        for bit in positions:
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            with pytest.raises(ValueError, match="manifest"):
                Manifest.from_bytes(bytes(flipped), "")
        assert _manifest(closed.storage, run) is not None


def _manifest(storage: Storage, run: RunInfo) -> Manifest | None:
    return read_manifest(storage, run)


class TestRepair:
    def test_a_damaged_manifest_is_named_and_written_again(self, closed: Run) -> None:
        whole = closed.manifest
        assert whole is not None
        for position in (0, len(whole) // 2, len(whole) - 1):
            damaged = bytearray(whole)
            damaged[position] ^= 8
            closed.storage.replace(MANIFEST, bytes(damaged))
            assert [each.path for each in verify(closed.url).damaged] == [MANIFEST], position
        assert repair(closed.url, dry_run=True).removed == (MANIFEST,)
        assert closed.manifest == bytes(damaged)
        done = repair(closed.url)
        assert (done.removed, done.marked, done.damaged) == ((MANIFEST,), (), ())
        assert verify(closed.url).is_whole
        assert closed.is_opened_by_manifest()
        assert repair(closed.url).removed == ()

    def test_a_manifest_of_a_run_with_lost_index_files_is_removed(self, closed: Run) -> None:
        lost = closed.storage.list_after("index/worker=worker_0")[3]
        closed.storage.remove(lost)
        done = repair(closed.url)
        assert (done.removed, done.marked) == ((MANIFEST,), (lost,))
        assert closed.manifest is None
        trial = closed.open()
        assert list(trial.damaged) == [lost]
        assert trial.steps() == [0, 1, 2, 4, 5]
        assert repair(closed.url).removed == ()

    def test_a_manifest_of_a_run_with_lost_values_stays(self, closed: Run) -> None:
        before = closed.manifest
        (lost,) = [
            file.path
            for file in closed.storage.walk()
            if file.path.endswith("worker=worker_0/00000003.parquet") and "tensors" in file.path
        ]
        closed.storage.remove(lost)
        done = repair(closed.url)
        assert (done.removed, done.marked) == ((), (lost,))
        assert closed.manifest == before
