"""Which process of a machine may resume a run that another one may still write to."""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from support import warm
from support.leased_runs import recorder, step
from support.waiting import wait_until
from tensortrial import create_trial, diagnose
from tensortrial.errors import RunInUse, RunTakenOver
from tensortrial.format.schema import session_end_path
from tensortrial.hooks.core.process.rank import Rank
from tensortrial.storage.open import open_storage
from tensortrial.write.lease import Observer, read_leases, this_process

BEGINNING = """
import os, sys, time
from tensortrial.errors import TensorTrialError
from tensortrial.hooks.core.configuration.options import Framework, HookOptions
from tensortrial.hooks.core.process.rank import rank_of_process
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
    recorder.save_scalars([("x", value)])
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


def start(program: str, folder: Path, **variables: str) -> warm.Process:
    environment = {key: value for key, value in os.environ.items() if key != "TENSORTRIAL_STRICT"}
    return warm.start(["-c", textwrap.dedent(program)], cwd=folder, env={**environment, **variables})


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[warm.Process]:
    """A process that writes to tmp_path / "run", until there is a file "stop"."""
    with start(WRITE_UNTIL_SIGNALLED, tmp_path) as process:
        assert process.stdout.readline() == "ready\n", process.communicate(timeout=60)[1]
        try:
            yield process
        finally:
            process.kill()


def run_of(url: Path, workers: int) -> None:
    """A run of one step that so many workers have closed."""
    jobs = [recorder(url, Rank(rank, workers)) for rank in range(workers)]
    for job in jobs:
        step(job, 0)
    for job in jobs:
        job.close()


# Processes of one machine.


def test_resume_refuses_while_the_first_process_writes(tmp_path: Path, writing: warm.Process) -> None:
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


def test_a_killed_process_frees_its_worker_at_once(tmp_path: Path, writing: warm.Process) -> None:
    # Not waited for: its parent, this process, has not noticed yet.
    writing.kill()
    storage = open_storage(tmp_path / "run")
    wait_until(lambda: not Observer(storage).alive(read_leases(storage)))
    resumed = recorder(tmp_path / "run", resume=True)
    step(resumed, -1)
    resumed.close()
    trial = create_trial(tmp_path / "run")
    assert trial.loaded_all_steps
    assert trial.tensor("x").value(trial.steps()[-1]) == -1


def test_force_takes_over_and_the_first_process_stops(tmp_path: Path, writing: warm.Process) -> None:
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
    assert diagnose(tmp_path / "run").failures == {}  # another process continued it


def test_the_environment_forces_as_well(tmp_path: Path, writing: warm.Process, monkeypatch: pytest.MonkeyPatch) -> None:
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
    with ExitStack() as stack:
        jobs = [stack.enter_context(start(RESUME_AT_ONCE, tmp_path, **rank)) for rank in ranks]
        for job in jobs:
            assert job.stdout.readline() == "ready\n", job.communicate(timeout=60)[1]
        (tmp_path / "go").touch()
        said = [job.stdout.readline().strip() for job in jobs]
        assert [sorted(said[rank::2]) for rank in range(2)] == [["RunInUse", "won"]] * 2
        (tmp_path / "stop").touch()
        assert [job.wait(60) for job in jobs] == [0] * 4
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
    seen = replace(own, id=child.pid)
    wait_until(lambda: not seen.runs)  # it has ended, although nobody has waited for it
    child.wait()
    assert not replace(own, host="elsewhere").is_local
    assert not replace(own, boot="in another container").is_local
    assert not replace(own, boot="").is_local
