"""Training processes that end in every way that happens, or are hampered: what they had published stays right."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from night.full_disk import Disk, fill_again_and_again  # noqa: E402
from plain_job import BEGINNING, OFF, check, finished, problems  # noqa: E402

from support.programs import start_cold  # noqa: E402
from support.waiting import wait_until  # noqa: E402
from tensortrial import create_trial  # noqa: E402

pytestmark = pytest.mark.slow

# The end of a process.

ENDINGS = {
    "os._exit": ("os._exit(3)", 3, False),
    "abort": ("os.abort()", -signal.SIGABRT, False),
    "SIGKILL": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, False),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", -signal.SIGTERM, True),
    "Ctrl-C": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -signal.SIGINT, True),
    "exception": ("raise RuntimeError('of the training')", 1, True),
    "sys.exit": ("sys.exit(4)", 4, True),
}
"""By name: the last statement of a program, its exit status, and whether the run is closed."""


@pytest.mark.parametrize("name", ENDINGS)
def test_a_process_that_ends_keeps_what_it_had_published(tmp_path: Path, name: str) -> None:
    ending, status, closes = ENDINGS[name]
    script = f"""
    hook = Hook(url, flush_seconds=1000)
    for index in range(12):
        assert published(hook, 0, index)
    for index in range(12, 15):
        save(hook, 0, index)
    {ending}
    """
    code, _, _ = finished(script, tmp_path)
    assert code == status
    assert create_trial(tmp_path / "disk" / "run").loaded_all_steps is closes
    check(tmp_path, {0: 14 if closes else 11})


# Clocks.

JUMP = """
    def jump(seconds):
        now, now_ns, day = time.time, time.time_ns, datetime.datetime

        class Jumped(day):
            @classmethod
            def now(cls, tz=None):
                return day.now(tz) + datetime.timedelta(seconds=seconds)

        time.time = lambda: now() + seconds
        time.time_ns = lambda: now_ns() + seconds * 10**9
        for module in list(sys.modules.values()):
            if getattr(module, "datetime", None) is day:
                module.datetime = Jumped
"""


@pytest.mark.parametrize("hours", [-24, 24])
def test_a_clock_that_jumps_by_a_day_stops_no_flush(tmp_path: Path, hours: int) -> None:
    script = f"""{JUMP}
    hook = Hook(url, flush_seconds=0.02)
    for index in range(5):
        assert published(hook, 0, index)
    jump({hours} * 3600)
    for index in range(5, 10):
        save(hook, 0, index)  # published by the writer alone
    sys.stdin.readline()
    hook.close()
    """
    began = time.time()
    with start_cold(f"{BEGINNING}{script}", tmp_path) as process:
        trial = create_trial(tmp_path / "disk" / "run", timeout=60)
        wait_until(lambda: len(trial.steps(show_incomplete_steps=True)) == 10)
        process.kill()
    rows = trial.sql("select global_step, epoch(saved_at) from tensors where name = 'index' order by 1").fetchall()
    for step, saved_at in rows:
        jumped = hours * 3600 if step >= 5 else 0
        assert -1 < saved_at - began - jumped < 600
    check(tmp_path, {0: 9})


@pytest.mark.parametrize("hours", [-24, 24])
def test_a_process_whose_clock_is_wrong_by_a_day_keeps_out_of_a_run_in_use_and_reads_it(
    tmp_path: Path, hours: int
) -> None:
    other = f"""{JUMP}
    jump({hours} * 3600)
    from tensortrial import create_trial
    from tensortrial.errors import RunInUse
    try:
        Hook(url, resume=True)
    except RunInUse:
        print("in use")
    print(len(create_trial(url).steps(show_incomplete_steps=True)))
    """
    script = """
    hook = Hook(url)
    assert all(published(hook, 0, index) for index in range(5))
    print("ready", flush=True)
    time.sleep(60)
    """
    with start_cold(f"{BEGINNING}{script}", tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        code, lines, err = finished(other, tmp_path)
        process.kill()
    assert (code, lines) == (0, ["in", "use", "5"]), err
    check(tmp_path, {0: 4})


# Memory.


@pytest.mark.parametrize(
    ("form", "codec", "more"),
    [("raw", "none", 0), ("statistics", "none", 40), ("raw", "zstd", 70), ("statistics", "zstd", 70)],
)
def test_a_job_that_gets_no_more_memory_trains_on(tmp_path: Path, form: str, codec: str, more: int) -> None:
    script = f"""
    from tensortrial import ReductionConfig

    hook = Hook(url, codec="{codec}", include_collections=["large"])
    hook.get_collection("large").include("large")
    if {form == "statistics"}:
        hook.get_collection("large").reduction_config = ReductionConfig(["mean", "std"], norms=["l2"])
    large = np.random.default_rng(0).random(1 << 23, np.float32)  # 32 MiB
    for index in range(6):
        assert published(hook, 0, index)
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ({more} << 20), -1))
    last = 5
    for index in range(6, 10):
        hook.save_tensor("large", large)
        if published(hook, 0, index):
            last = index
    hook.close()
    print(last)
    """
    code, lines, err = finished(script, tmp_path)
    assert code == 0, err
    last = int(lines[-1])
    assert last == 9 or OFF in err
    assert more or last == 5
    check(tmp_path, {0: last})


# Disks.


@pytest.mark.parametrize(
    ("happening", "reason"),
    [
        ("shutil.rmtree(url)", None),
        ("os.rename('disk', 'gone'); open('disk', 'w').close()", "NotADirectoryError|Not a directory"),
    ],
    ids=["deleted", "replaced"],
)
def test_a_job_whose_run_vanishes_trains_on(tmp_path: Path, happening: str, reason: str | None) -> None:
    script = f"""
    hook = Hook(url)
    for index in range(6):
        assert published(hook, 0, index)
    {happening}
    for index in range(6, 12):
        published(hook, 0, index)
    hook.close()
    """
    code, _, err = finished(script, tmp_path)
    assert code == 0, err
    if reason is None:
        # What was saved later is a run of its own.
        assert "its folder was renamed or removed" in err
        assert create_trial(tmp_path / "disk" / "run").steps() == [*range(6, 12)]
    else:
        assert OFF in err
        assert re.search(reason, err)
        (tmp_path / "disk").unlink()
        (tmp_path / "gone").rename(tmp_path / "disk")
        check(tmp_path, {0: 5})


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    disk = Disk(folder)
    if not disk.mount("size=8m"):
        pytest.skip("mounting a tmpfs is not permitted here")
    yield disk
    disk.unmount()


def test_a_job_whose_disk_becomes_read_only_trains_on(tmp_path: Path, small_disk: Disk) -> None:
    script = """
    hook = Hook(url, flush_seconds=0.01)
    for index in range(6):
        assert published(hook, 0, index)
    print("ready", flush=True)
    sys.stdin.readline()
    for index in range(6, 12):
        assert not published(hook, 0, index)
    hook.close()
    """
    with start_cold(f"{BEGINNING}{script}", tmp_path, stdin=subprocess.PIPE, TENSORTRIAL_STRICT="0") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert small_disk.mount("remount,ro")
        _, err = process.communicate("\n", timeout=60)
    assert process.returncode == 0, err
    assert OFF in err
    assert "Read-only file system" in err
    assert problems(str(tmp_path / "disk" / "run"), {0: 5}) == []
    assert small_disk.mount("remount,rw")
    check(tmp_path, {0: 5})


def test_a_disk_that_fills_and_empties_again_and_again_loses_nothing(tmp_path: Path, small_disk: Disk) -> None:
    """The finder `full_disk` fills it at other moments."""
    del small_disk
    sessions = [(full_from, 4096 * (number * 5 % 37)) for number, full_from in enumerate([0, 4, 1] * 4)]
    offs, promised = fill_again_and_again(tmp_path, sessions)
    assert offs >= len(sessions) // 3
    assert max(promised) > len(sessions) // 2
