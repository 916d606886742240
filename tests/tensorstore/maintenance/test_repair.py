"""Repair: of what a crash left, of what is lost, killed at every call of the storage, and next to a living writer."""

from __future__ import annotations

import shutil
import subprocess
import textwrap
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from support import warm
from support.commands import run_command
from support.permissions import bound_by_modes
from support.runs import Job, chunk, index_file
from tensortrial.errors import RunInUse, StepUnavailable
from tensortrial.maintenance.compaction import compact
from tensortrial.storage.local import LocalStorage
from tensortrial.storage.open import open_storage

pytestmark = pytest.mark.usefixtures("nothing_is_small")

STEPS = 6


def write(url: Path | str, workers: tuple[str, ...] = ("worker_0",)) -> None:
    with ExitStack() as stack:
        jobs = [stack.enter_context(Job(url, worker, len(workers), flush_seconds=3600)) for worker in workers]
        for step in range(STEPS):
            for job in jobs:
                job.publish({"w": np.full(30, step), "loss": 0.5})


def files(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


def orphans(run: Path) -> list[str]:
    """Leave what crashes leave: values that no index file names, and temporary files."""
    stray = chunk(run, 2).with_name("00000077.parquet")
    shutil.copy(chunk(run, 2), stray)
    temporary = index_file(run, 2).with_name(".00000078.parquet.0123456789abcdef.tmp")
    temporary.write_bytes(b"PAR1")
    return sorted(str(path.relative_to(run)) for path in (stray, temporary))


def test_a_whole_run_stays_as_it_is(tmp_path: Path) -> None:
    write(tmp_path)
    before = files(tmp_path)
    done = tensortrial.repair(tmp_path, delete_older_than=0)
    assert (done.removed, done.kept, done.marked, done.damaged) == ((), (), (), ())
    assert files(tmp_path) == before


def test_what_no_index_file_names_is_removed_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path)
    whole = files(tmp_path)
    left = orphans(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    planned = tensortrial.repair(tmp_path, delete_older_than=0, dry_run=True)
    assert list(planned.removed) == left
    assert planned.is_dry_run
    assert set(files(tmp_path)) == {*whole, *left, "notes.txt"}
    assert tensortrial.repair(tmp_path).kept == planned.removed  # younger than an hour
    assert list(tensortrial.repair(tmp_path, delete_older_than=0).removed) == left
    assert files(tmp_path) == {**whole, "notes.txt": b"mine"}


def test_a_run_in_memory_is_repaired() -> None:
    url = "memory://repaired"
    write(url)
    storage = open_storage(url)
    stray = "tensors/mode=GLOBAL/step=000000000000/worker=worker_0/00000077.parquet"
    storage.create(stray, storage.read(stray.replace("77", "02")))
    assert tensortrial.repair(url, delete_older_than=0).removed == (stray,)
    lost = "index/worker=worker_0/step=000000000000/00000003.parquet"
    storage.remove(lost)
    assert tensortrial.repair(url, delete_older_than=0).marked == (lost,)
    assert tensortrial.verify(url).is_whole


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_lost_index_file_is_marked_and_its_values_are_kept(tmp_path: Path, how: str, compacted: bool) -> None:
    write(tmp_path)
    lost, path = index_file(tmp_path, 3), str(index_file(tmp_path, 3).relative_to(tmp_path))
    if how == "missing":
        lost.unlink()
    else:
        lost.write_bytes(lost.read_bytes()[:-5])
    if compacted:
        compact(tmp_path, delete_older_than=0)
    before = files(tmp_path)
    assert not tensortrial.verify(tmp_path).is_whole
    done = tensortrial.repair(tmp_path, delete_older_than=0)
    assert done.marked == (path,)
    assert done.removed == ()
    assert {name: data for name, data in files(tmp_path).items() if not name.startswith("lost/")} == before
    report = tensortrial.verify(tmp_path)
    assert report.is_whole
    assert [damage.path for damage in report.lost] == [path]
    trial = tensortrial.create_trial(tmp_path)
    assert trial.has_passed_step(3) is tensortrial.StepState.UNAVAILABLE
    with pytest.raises(StepUnavailable, match="00000003"):
        trial.wait_for_steps([3])
    again = tensortrial.repair(tmp_path, delete_older_than=0)
    assert (again.removed, again.marked) == ((), ())


def test_values_of_a_crash_are_removed_before_the_first_index_file(tmp_path: Path) -> None:
    write(tmp_path)
    values = chunk(tmp_path, 0)
    kept = str(values.relative_to(tmp_path)), values.read_bytes()
    run = tmp_path / "crashed"
    with Job(run):
        pass
    for path in run.glob("end/*"):
        path.unlink()
    (run / kept[0]).parent.mkdir(parents=True)
    (run / kept[0]).write_bytes(kept[1])
    assert tensortrial.repair(run, delete_older_than=0).removed == (kept[0],)


def test_lost_values_are_marked_with_their_steps_and_tensors(tmp_path: Path) -> None:
    write(tmp_path)
    lost = chunk(tmp_path, 3)
    kept = lost.read_bytes()
    lost.unlink()
    tensortrial.repair(tmp_path, delete_older_than=0)
    report = tensortrial.verify(tmp_path)
    assert report.is_whole
    assert [(damage.steps, damage.tensors) for damage in report.lost] == [((3,), ("w",))]
    lost.write_bytes(kept)
    assert tensortrial.verify(tmp_path).lost == ()


def test_values_of_a_worker_whose_claim_is_lost_are_kept(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "collections/worker_0.json").write_text("{")
    before = files(tmp_path)
    done = tensortrial.repair(tmp_path, delete_older_than=0)
    assert [damage.path for damage in done.damaged] == ["collections/worker_0.json"]
    assert done.removed == ()
    assert files(tmp_path) == before


def test_a_file_that_cannot_be_read_now_is_not_marked(tmp_path: Path) -> None:
    write(tmp_path)
    index_file(tmp_path, 3).chmod(0)
    done = bound_by_modes(lambda: tensortrial.repair(tmp_path, delete_older_than=0))
    assert done.marked == ()
    assert len(done.damaged) == 1
    index_file(tmp_path, 3).chmod(0o600)
    assert tensortrial.verify(tmp_path).is_whole


class Killed(BaseException):
    """The process dies."""


class Kill:
    """Ends the process at a change of the storage, before or after it is done; a signal finds no such moment."""

    def __init__(self, at: int, after: bool) -> None:
        self._left, self._after = at, after

    def patch(self, patched: pytest.MonkeyPatch) -> None:
        for name in ("create", "replace", "remove", "touch"):
            patched.setattr(LocalStorage, name, self._killing(getattr(LocalStorage, name)))

    def _killing(self, change: Callable[..., None]) -> Callable[..., None]:
        def killing(storage: LocalStorage, *args: Any) -> None:
            self._left -= 1
            if self._left < 0:
                if self._after:
                    change(storage, *args)
                raise Killed
            change(storage, *args)

        return killing


@pytest.mark.parametrize("after", [False, True])
def test_a_repair_that_is_killed_at_any_change_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    write(tmp_path / "made", ("worker_0", "worker_1"))
    orphans(tmp_path / "made")
    index_file(tmp_path / "made", 4, "worker_1").unlink()
    chunk(tmp_path / "made", 1, "worker_1").unlink()
    expected = tmp_path / "expected"
    shutil.copytree(tmp_path / "made", expected)
    tensortrial.repair(expected, delete_older_than=0)
    kills, is_killed = 0, True
    while is_killed:
        run = tmp_path / f"killed-{kills}"
        shutil.copytree(tmp_path / "made", run)
        with monkeypatch.context() as patched:
            Kill(kills, after).patch(patched)
            try:
                tensortrial.repair(run, delete_older_than=0)
                is_killed = False
            except Killed:
                kills += 1
        trial = tensortrial.create_trial(run)
        assert trial.steps() == list(range(STEPS))
        assert [trial.tensor("w").value(step)[0] for step in range(STEPS)] == list(range(STEPS))
        tensortrial.repair(run, delete_older_than=0)
        assert _without_times(run) == _without_times(expected)
    # Two marks and two removals.
    assert kills >= 4


def _without_times(run: Path) -> dict[str, bytes]:
    return {name: b"" if name.startswith("lost/") else data for name, data in files(run).items()}


def test_a_run_that_a_living_process_writes_is_refused(tmp_path: Path) -> None:
    program = textwrap.dedent(
        f"""
        import sys
        import numpy as np
        from support.runs import Job
        from tensortrial.write.lease import Lease
        job = Job({str(tmp_path)!r}, flush_seconds=0)
        lease = Lease(job.storage, "worker_0", 0, 1, 60.0)
        lease.begin()
        job.publish({{"w": np.zeros(3)}})
        print("ready", flush=True)
        sys.stdin.read()
        """
    )
    with warm.start(["-c", program], stdin=subprocess.PIPE) as writer:
        assert writer.stdout.readline() == "ready\n"
        with pytest.raises(RunInUse, match="--force"):
            tensortrial.repair(tmp_path)
        assert tensortrial.repair(tmp_path, force=True).removed == ()
        writer.kill()
    assert tensortrial.repair(tmp_path).removed == ()


def test_the_command_prints_what_it_does(tmp_path: Path) -> None:
    write(tmp_path)
    left = orphans(tmp_path)
    command = ("repair", "--no-progress", "--delete-older-than", "0", tmp_path)
    done = run_command(*command, "--dry-run")
    assert done.stderr == ""
    assert sorted(done.stdout.splitlines()) == [f"would be removed: {path}" for path in left]
    done = run_command(*command)
    assert sorted(done.stdout.splitlines()) == [f"removed: {path}" for path in left]
