"""Who may resume a run that another process may still write to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.servers import ObjectStore
from tensortrial import create_trial
from tensortrial.errors import ConfigurationError, RunInUse, RunTakenOver
from tensortrial.format.schema import end_path, session_end_path
from tensortrial.hooks.core.options import Framework, HookOptions
from tensortrial.hooks.core.rank import Rank
from tensortrial.hooks.core.recorder import Recorder
from tensortrial.storage.open import Storage, open_storage
from tensortrial.write.lease import LeaseInfo, Observer, read_leases
from tensortrial.write.process import Process, this_process

SECONDS = 60.0
BEGINNING = """
import os, sys, time
from tensortrial.errors import TensorTrialError
from tensortrial.hooks.core.options import Framework, HookOptions
from tensortrial.hooks.core.rank import rank_of_process
from tensortrial.hooks.core.recorder import Recorder

def recorder(**options):
    names = ["losses"]
    return Recorder(
        HookOptions("run", save_config={"save_interval": 1}, flush_seconds=0, **options),
        Framework("none", builtin=names, always_saved=names),
        rank_of_process,
    )

def step(recorder, value):
    recorder.begin_step()
    recorder.save_scalar("x", value)
    recorder.end_step()
"""
WRITE_UNTIL_SIGNALLED = (
    BEGINNING
    + """
first = recorder()
step(first, 0)
first.flush()
print("ready", flush=True)
number = 0
while not os.path.exists("stop"):
    number += 1
    try:
        step(first, number)
    except TensorTrialError as error:
        first.fail(error)
    time.sleep(0.01)
print("trained to the end", flush=True)
"""
)


@pytest.fixture(autouse=True)
def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENSORTRIAL_STRICT", raising=False)


def start(program: str, folder: Path, **variables: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))}
    environment.pop("TENSORTRIAL_STRICT", None)
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=folder,
        env={**environment, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that writes to tmp_path / "run", until there is a file "stop"."""
    with start(WRITE_UNTIL_SIGNALLED, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate(timeout=60)[1]
        try:
            yield process
        finally:
            process.kill()


def recorder(url: str | Path, rank: Rank = Rank(), **options: Any) -> Recorder:  # noqa: B008
    names = ["losses"]
    options.setdefault("include_workers", "all" if rank.size > 1 else "one")
    return Recorder(
        HookOptions(url, save_config={"save_interval": 1}, flush_seconds=0, **options),
        Framework("none", builtin=names, always_saved=names),
        lambda: rank,
    )


def run_of(url: Path, workers: int) -> None:
    """A run of one step that so many workers have closed."""
    jobs = [recorder(url, Rank(rank, workers)) for rank in range(workers)]
    for job in jobs:
        step(job, 0)
    for job in jobs:
        job.close()


def step(recorder: Recorder, value: float) -> None:
    recorder.begin_step()
    recorder.save_scalar("x", value)
    recorder.end_step()


def held_elsewhere(storage: Storage, seconds: float = SECONDS, **changes: Any) -> LeaseInfo:
    """Leave a run behind whose worker_0 is a process of another machine that has not ended."""
    first = recorder(storage.url, storage_options=getattr(storage, "_options", None))
    step(first, 0)
    first.close()
    (lease,) = read_leases(storage)
    process = Process(17, "1", "elsewhere", "another boot")
    lease = replace(lease, process=process, seconds=seconds, released_at=None, **changes)
    storage.replace(lease.path, lease.to_bytes())
    storage.remove(end_path("worker_0"))
    return lease


# Processes of one machine.


def test_resume_refuses_while_the_first_process_writes(tmp_path: Path, writing: subprocess.Popen[str]) -> None:
    began = datetime.now(UTC).isoformat()[:10]
    with pytest.raises(
        RunInUse, match=rf"process {writing.pid} on host .* as worker_0 since {began}T.*force=True"
    ) as e:
        recorder(tmp_path / "run", resume=True)
    assert e.value.worker == "worker_0"
    assert isinstance(e.value, FileExistsError)
    (tmp_path / "stop").touch()
    assert writing.wait(60) == 0
    resumed = recorder(tmp_path / "run", resume=True)
    resumed.close()


def test_a_killed_process_frees_its_worker_at_once(tmp_path: Path, writing: subprocess.Popen[str]) -> None:
    # Not waited for: its parent, this process, has not noticed yet.
    writing.kill()
    deadline = time.monotonic() + 60
    while Observer(open_storage(tmp_path / "run")).alive(read_leases(open_storage(tmp_path / "run"))):
        assert time.monotonic() < deadline
    resumed = recorder(tmp_path / "run", resume=True)
    step(resumed, -1)
    resumed.close()
    trial = create_trial(tmp_path / "run")
    assert trial.loaded_all_steps
    assert trial.tensor("x").value(trial.steps()[-1]) == -1


def test_force_takes_over_and_the_first_process_stops(tmp_path: Path, writing: subprocess.Popen[str]) -> None:
    taken = recorder(tmp_path / "run", resume=True, force=True)
    step(taken, -1)
    taken.flush()
    end = tmp_path / "run" / session_end_path("worker_0", 0)
    wait_until(end.exists)
    document = json.loads(end.read_text())
    assert (document["session"], document["worker"]) == (0, "worker_0")
    assert f"process {os.getpid()} on host" in document["failure"]
    assert "RunTakenOver" in document["failure"]
    trial = create_trial(tmp_path / "run")
    assert not trial.loaded_all_steps
    first_of_taken = trial.steps()[-1]
    step(taken, -2)
    (tmp_path / "stop").touch()
    out, err = writing.communicate(timeout=60)
    assert (writing.returncode, out) == (0, "trained to the end\n")
    assert err.count("taken the run over") >= 1
    trial.refresh()
    assert not trial.loaded_all_steps
    assert trial.steps()[-2:] == [first_of_taken, first_of_taken + 1]
    assert trial.steps() == list(range(first_of_taken + 2))
    taken.close()
    trial.refresh()
    assert trial.loaded_all_steps
    assert [trial.tensor("x").value(number) for number in trial.steps()[-2:]] == [-1, -2]


def test_the_environment_forces_as_well(
    tmp_path: Path, writing: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORTRIAL_FORCE", "1")
    recorder(tmp_path / "run", resume=True).close()


def test_a_process_cannot_resume_its_own_live_run(tmp_path: Path) -> None:
    first = recorder(tmp_path / "run")
    step(first, 0)
    with pytest.raises(RunInUse, match=r"\(this process\)"):
        recorder(tmp_path / "run", resume=True)
    first.close()


RESUME_AT_ONCE = (
    BEGINNING
    + """
from pathlib import Path

print("ready", flush=True)
while not os.path.exists("go"):
    pass
try:
    resumed = recorder(resume=True, include_workers="all")
    step(resumed, float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
    print("won", flush=True)
    while not os.path.exists("stop"):
        time.sleep(0.01)
    resumed.close()
except TensorTrialError as error:
    print(type(error).__name__, flush=True)
"""
)


def test_of_two_jobs_that_resume_at_one_moment_one_wins_each_worker(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 2)
    ranks = [{"RANK": str(rank), "WORLD_SIZE": "2"} for rank in (0, 1, 0, 1)]
    jobs = [start(RESUME_AT_ONCE, tmp_path, **rank) for rank in ranks]
    try:
        for job in jobs:
            assert job.stdout is not None
            assert job.stdout.readline() == "ready\n", job.communicate(timeout=60)[1]
        (tmp_path / "go").touch()
        said = [job.stdout.readline().strip() for job in jobs if job.stdout]
        assert [sorted(said[rank::2]) for rank in range(2)] == [["RunInUse", "won"]] * 2
        (tmp_path / "stop").touch()
        assert [job.wait(60) for job in jobs] == [0] * 4
    finally:
        for job in jobs:
            job.kill()
            job.communicate()
    trial = create_trial(tmp_path / "run")
    assert trial.steps() == [0, 1]
    assert trial.tensor("x").workers(1) == ["worker_0", "worker_1"]
    assert trial.loaded_all_steps


@pytest.mark.parametrize("existing", [True, False])
def test_workers_that_resume_together_share_a_session(tmp_path: Path, existing: bool) -> None:
    if existing:
        run_of(tmp_path / "run", 3)
    jobs = [recorder(tmp_path / "run", Rank(rank, 3), resume=True) for rank in range(3)]
    for value, job in enumerate(jobs):
        step(job, value)
    assert {lease.session for lease in read_leases(open_storage(tmp_path / "run"))} == {int(existing)}
    for job in jobs:
        job.close()
    trial = create_trial(tmp_path / "run")
    assert trial.steps() == ([0, 1] if existing else [0])
    assert trial.loaded_all_steps


def test_a_worker_of_the_old_job_keeps_a_smaller_one_from_resuming(tmp_path: Path) -> None:
    old = [recorder(tmp_path / "run", Rank(rank, 2)) for rank in range(2)]
    for job in old:
        step(job, 0)
    old[0].close()
    with pytest.raises(RunInUse, match="as worker_1"):
        recorder(tmp_path / "run", resume=True)
    new = recorder(tmp_path / "run", resume=True, force=True)
    step(new, 1)
    # The old worker has no successor of its name, and stops all the same.
    step(old[1], 5)
    with pytest.raises(RunTakenOver, match="taken the run over"):
        old[1].flush()
    old[1].close()
    new.close()
    assert create_trial(tmp_path / "run").loaded_all_steps


def test_an_id_that_is_used_again_is_not_the_old_process() -> None:
    own = this_process()
    assert own.is_local
    assert own.runs
    assert not replace(own, started="1").runs
    child = subprocess.Popen(["true"])
    deadline = time.monotonic() + 60
    seen = replace(own, id=child.pid)
    while seen.runs and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not seen.runs  # it has ended, although nobody has waited for it
    child.wait()
    assert not replace(own, host="elsewhere").is_local
    assert not replace(own, boot="in another container").is_local
    assert not replace(own, boot="").is_local


# Processes of other machines.


@pytest.fixture(params=["local", "memory", pytest.param("moto", marks=pytest.mark.s3)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty folder or bucket."""
    if request.param == "local":
        return open_storage(tmp_path / "run")
    if request.param == "memory":
        return open_storage(f"memory://{tmp_path.name}/run")
    store: ObjectStore = request.getfixturevalue("moto_s3")
    return open_storage(f"{store.new_bucket()}/run", store.storage_options)


def resume(storage: Storage, **options: Any) -> Recorder:
    return recorder(storage.url, resume=True, storage_options=getattr(storage, "_options", None), **options)


def test_another_machine_is_alive_for_as_long_as_its_lease(storage: Storage) -> None:
    held_elsewhere(storage)
    with pytest.raises(RunInUse, match="process 17 on host 'elsewhere'"):
        resume(storage)


def test_a_lease_that_ran_out_frees_the_worker(storage: Storage) -> None:
    lease = held_elsewhere(storage, seconds=0.5)
    written, _ = storage.written_at(lease.path)
    # A store's clock may show whole seconds only.
    wait_until(lambda: storage.written_at(lease.path)[1] > written + 1.5)
    resumed = resume(storage)
    step(resumed, 1)
    resumed.close()
    trial = create_trial(storage.url, storage_options=getattr(storage, "_options", None))
    assert trial.steps() == [0, 1]
    assert trial.loaded_all_steps


@pytest.mark.parametrize("hours", [-10, 10])
def test_a_jump_of_the_clock_kills_no_live_process(tmp_path: Path, hours: int) -> None:
    storage = open_storage(tmp_path / "run")
    lease = held_elsewhere(storage, seconds=6)
    file = tmp_path / "run" / lease.path
    past = time.time() - hours * 3600
    os.utime(file, (past, past))
    ended = threading.Event()

    def renew() -> None:
        number = 0
        while not ended.wait(0.3):
            number += 1
            os.utime(file, (past + number, past + number))

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        with pytest.raises(RunInUse, match="elsewhere"):
            resume(storage)
    finally:
        ended.set()
        thread.join()


def test_a_process_that_missed_its_successor_stops_when_it_wakes(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = getattr(storage, "_options", None)
    monkeypatch.setenv("TENSORTRIAL_LEASE_SECONDS", "60" if storage.is_local else "1.5")
    first = recorder(storage.url, storage_options=options)
    step(first, 0)
    first.flush()
    taken = resume(storage, force=True)
    step(taken, 1)
    taken.flush()
    lease = first._run._lease
    assert lease is not None
    lease._renewed_at -= 2 * SECONDS  # the machine slept
    step(first, 5)
    with pytest.raises(RunTakenOver, match="taken the run over"):
        first.flush()
    first.close()
    assert storage.list("end") == [session_end_path("worker_0", 0).rpartition("/")[2]]
    taken.close()
    trial = create_trial(storage.url, storage_options=options)
    assert trial.tensor("x").values() == {0: 0, 1: 1}
    assert trial.loaded_all_steps


def test_an_end_of_an_earlier_session_does_not_end_the_run_for_readers(storage: Storage) -> None:
    options = getattr(storage, "_options", None)
    first = recorder(storage.url, storage_options=options)
    step(first, 0)
    first.close()
    old = storage.read(end_path("worker_0"))
    resumed = resume(storage)
    step(resumed, 1)
    resumed.flush()
    # The first process ended at the same moment.
    storage.replace(end_path("worker_0"), old)
    trial = create_trial(storage.url, storage_options=options)
    assert not trial.loaded_all_steps
    resumed.close()
    trial.refresh()
    assert trial.loaded_all_steps


@pytest.mark.s3
def test_a_lease_costs_a_request_for_each_third_of_it(moto_s3: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspec.asyn import sync_wrapper
    from s3fs import S3FileSystem

    made: Counter[str] = Counter()
    call = S3FileSystem._call_s3

    async def counted(self: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        made[method] += 1
        return await call(self, method, *args, **kwargs)

    monkeypatch.setattr(S3FileSystem, "call_s3", sync_wrapper(counted))
    monkeypatch.setenv("TENSORTRIAL_LEASE_SECONDS", "1.5")
    storage = open_storage(f"{moto_s3.new_bucket()}/run", moto_s3.storage_options)
    held = recorder(storage.url, storage_options=moto_s3.storage_options)
    step(held, 0)
    held.flush()
    (lease,) = read_leases(storage)
    made.clear()
    began = time.monotonic()
    wait_until(lambda: time.monotonic() > began + 2)
    thirds = (time.monotonic() - began) / 0.5
    assert 1 <= made["copy_object"] <= thirds + 1
    assert made.total() == made["copy_object"]
    written, now = storage.written_at(lease.path)
    assert now - written <= lease.seconds + 1
    held.close()


@pytest.mark.s3
def test_a_real_store_takes_a_renewal_and_says_when(ceph_s3: ObjectStore) -> None:
    storage = open_storage(f"{ceph_s3.new_bucket()}/run", ceph_s3.storage_options)
    storage.create("leases/a", b"text")
    written, now = storage.written_at("leases/a")
    assert 0 <= now - written < 60
    wait_until(lambda: storage.written_at("leases/a")[1] > written + 2)
    storage.touch("leases/a")
    assert storage.written_at("leases/a")[0] > written
    assert storage.read("leases/a") == b"text"
    storage.remove("leases/a")
    with pytest.raises(FileNotFoundError):
        storage.touch("leases/a")
    with pytest.raises(FileNotFoundError):
        storage.written_at("leases/a")


# What is written.


def test_a_closed_run_is_held_by_nobody(storage: Storage) -> None:
    held = recorder(storage.url, storage_options=getattr(storage, "_options", None))
    step(held, 0)
    names = {thread.name for thread in threading.enumerate()}
    assert "tensortrial-lease-worker_0" in names
    held.close()
    (lease,) = read_leases(storage)
    assert lease.released_at is not None
    assert LeaseInfo.from_bytes(lease.to_bytes(), lease.path) == lease
    assert "tensortrial-lease-worker_0" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"worker": 5}', "[" * 100_000, '{"worker": "worker_0", "session": 0, "process": []}']
)
def test_a_damaged_lease_is_ignored(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    step(first := recorder(tmp_path / "run"), 0)
    first.close()
    (tmp_path / "run" / "leases" / "worker_0=00000000.json").write_text(text)
    recorder(tmp_path / "run", resume=True).close()
    assert "leases/worker_0=00000000.json is damaged and is ignored" in caplog.text


@pytest.mark.parametrize(
    "change", [{"worker": "worker_1"}, {"session": 1}, {"session": -1}, {"process": {"id": 1 << 40}}], ids=str
)
def test_a_lease_that_does_not_belong_to_its_file_is_damaged(
    tmp_path: Path, change: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    step(first := recorder(tmp_path), 0)
    first.close()
    file = tmp_path / "leases" / "worker_0=00000000.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    assert read_leases(open_storage(tmp_path)) == []
    assert "leases/worker_0=00000000.json is damaged and is ignored" in caplog.text


@pytest.mark.parametrize("text", ["", "60", "0.5"])
def test_the_length_of_a_lease_is_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TENSORTRIAL_LEASE_SECONDS", text)
    held = recorder(tmp_path / "run")
    step(held, 0)
    held.close()
    assert [lease.seconds for lease in read_leases(open_storage(tmp_path / "run"))] == [float(text or 60)]


@pytest.mark.parametrize("text", ["-1", "0", "x", "nan", "inf"])
def test_a_lease_length_that_is_not_a_number_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("TENSORTRIAL_LEASE_SECONDS", text)
    with pytest.raises(ConfigurationError, match=f"number of seconds.*'{text}'"):
        recorder(tmp_path / "run")


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
