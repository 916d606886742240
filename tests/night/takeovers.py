"""A writer that is stopped at one of its writes while another process takes its run over, and then goes on.

SQL, the API and an export have the same rows, one for each tensor and step: also a trial that was open meanwhile.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import numpy as np
import pytest
from night.finder import always

import tensortrial
from support.limits import set_limits
from support.plain_hook import Hook
from support.programs import start
from support.warm import Process
from tensortrial.errors import MissingCollectionFiles, RunNotFound
from tensortrial.exports import export
from tensortrial.maintenance.compaction import compact
from tensortrial.read.trial import Trial

PUBLISHING = ("os.link",)
"""The events by which a file gets its name."""
CHANGING = (*PUBLISHING, "open", "os.rename", "os.remove", "os.utime", "os.mkdir")
"""The events by which a process changes files."""
NAMES = ("x", "w")

Rows = Mapping[tuple[str, int], float]
"""The first element of each tensor at each step."""


def stop_at(events: Sequence[str], number: int) -> None:
    """Let this process stop itself before one of some events, counted from here."""
    counted = itertools.count()

    def stop(event: str, arguments: tuple[Any, ...]) -> None:
        reads = event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if event in events and not reads and next(counted) == number:
            os.kill(os.getpid(), signal.SIGSTOP)

    sys.addaudithook(stop)


def save(hook: Hook, session: int, steps: int, every: int) -> None:
    """Save steps, and flush after some of them. Each value names its session."""
    for number in range(steps):
        hook.save_scalar("x", session)
        hook.save_tensor("w", np.full(40, float(session)))
        hook.set_mode("TRAIN")  # closes the step
        if number % every == every - 1:
            hook.flush()


def write(url: str, events: Sequence[str], number: int, earlier: int, steps: int, every: int) -> None:
    """Write a run, and stop at a write of the last of its sessions."""
    if earlier:
        with closing(Hook(url, flush_seconds=1000)) as hook:
            save(hook, 1, earlier, every)
    stop_at(events, number)
    with closing(Hook(url, flush_seconds=1000, resume=True)) as hook:
        save(hook, 2, steps, every)


def take_over(url: str, back_to: int | None, parts: list[int], every: int, compacts: bool) -> None:
    """Take a run over, and save parts of a session, each once it is requested."""
    with pytest.MonkeyPatch.context() as patch:
        set_limits(patch, seconds_of_a_lock=0.1)
        with closing(Hook(url, flush_seconds=1000, resume=True, force=True)) as hook:
            if back_to is not None:
                hook.resume_at(back_to, "TRAIN")
            for part in parts:
                save(hook, 3, part, every)
                hook.flush()
                if compacts:
                    compact(url, delete_older_than=0)
                print("saved", flush=True)
                sys.stdin.readline()


def begin(folder: Path, function: Any, *arguments: Any) -> Process:
    """Start a function of this module in a process of its own."""
    called = f"from night import takeovers\ntakeovers.{function.__name__}{arguments!r}"
    own = folder / function.__name__
    own.mkdir()
    return start(called, own, stdin=subprocess.PIPE, TENSORTRIAL_STRICT="0", TENSORTRIAL_ENVIRONMENT="0")


def is_stopped(process: Process) -> bool:
    """Wait until a process has stopped itself or ended. Return whether it has stopped."""
    while process.poll() is None:
        with suppress(OSError):  # it has just ended
            if Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                return True
        time.sleep(0.001)
    return False


def saved(process: Process) -> None:
    """Wait until a process has saved a part of its session."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == "saved\n", process.communicate(timeout=60)


def proceed(process: Process) -> None:
    """Request the next part of a session."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def opened(url: str) -> Trial | None:
    """Return the run, if it has begun."""
    try:
        return tensortrial.create_trial(url)
    except (RunNotFound, MissingCollectionFiles):
        return None


def rows_of(trial: Trial) -> Rows:
    """Return the rows of a run, after a check that SQL and the API agree."""
    with tensortrial.no_refresh(trial):
        trial.refresh()
        steps = trial.steps(show_incomplete_steps=True)
        by_api = {
            (name, step): float(value.flat[0])
            for name in trial.tensor_names()
            for step, value in trial.values([name], steps)[name].items()
        }
        by_sql = trial.sql("select name, global_step, scalar from tensors").fetchall()
        assert Counter((name, step) for name, step, _ in by_sql) == Counter(by_api.keys())
        assert all(by_api[name, step] == scalar for name, step, scalar in by_sql if scalar is not None)
        raw = trial.sql("select name, global_step, value from tensor_values").fetchall()
        assert Counter(step for _, step, _ in raw) == Counter(step for name, step in by_api if name == "w")
        assert all(by_api[name, step] == np.frombuffer(value)[0] for name, step, value in raw)
        listed = trial.sql("select global_step from steps").fetchall()
        assert Counter(step for (step,) in listed) == Counter(steps)
    assert not trial.damaged
    return by_api


def exported(url: str, target: Path) -> Rows:
    """Export the new rows of a run, and return all that the target has then."""
    export(url, f"duckdb:{target}", progress=False)
    with duckdb.connect(str(target), read_only=True) as database:
        found = database.sql("select name, global_step, scalar from tensors").fetchall()
    assert len(found) == len({row[:2] for row in found}), found
    return {(name, step): scalar for name, step, scalar in found}


def check_all(url: str, follower: Trial | None, target: Path, is_last: bool = False) -> Rows:
    """Check a run by a new trial, by one that was open, and by an export. Return its rows.

    A trial that is open may not have found yet what the stopped writer published late, until the next session has
    saved the same steps.
    """
    with tensortrial.create_trial(url) as trial:
        rows = rows_of(trial)
    if follower is not None:
        followed = rows_of(follower)
        assert followed.items() <= rows.items()
        assert len(followed) == len(rows) or not is_last
    found = exported(url, target)
    assert found.keys() == rows.keys()
    assert all(value == rows[key] for key, value in found.items() if value is not None)
    return rows


def _case(random: Random, own: Path) -> Counter[str]:
    url, target = str(own / "run"), own / "exported.duckdb"
    earlier, steps, every = random.choice([0, 0, 3]), random.randint(1, 6), random.randint(1, 3)
    # More than a session makes of them, so that some are not stopped.
    events, most = random.choice([(CHANGING, 60), (PUBLISHING, 12)])
    number = random.randrange(most)
    with begin(own, write, url, events, number, earlier, steps, every) as writer:
        was_stopped = is_stopped(writer)
        follower = opened(url)
        if follower is not None and random.random() < 0.5:
            check_all(url, follower, target)
        back_to = random.choice([None, None, 0, 1]) if follower and follower.steps("TRAIN") else None
        parts = [random.randint(1, 3), steps + earlier]
        with begin(own, take_over, url, back_to, parts, every, random.random() < 0.3) as successor:
            saved(successor)
            if random.random() < 0.5:
                check_all(url, follower, target)
            writer.send_signal(signal.SIGCONT)
            _, err = writer.communicate(timeout=60)
            assert writer.returncode == 0, err
            check_all(url, follower, target)
            proceed(successor)
            saved(successor)
            rows = check_all(url, follower, target, is_last=True)
            proceed(successor)
            _, err = successor.communicate(timeout=60)
            assert successor.returncode == 0, err
    assert check_all(url, follower, target, is_last=True) == rows
    compact(url, delete_older_than=0)
    assert check_all(url, follower, target, is_last=True) == rows
    with tensortrial.create_trial(url) as trial:
        assert trial.loaded_all_steps
        assert not trial.verify().damaged
    return Counter({"stopped writers": int(was_stopped), "rows": len(rows)})


prepared = always(_case)
