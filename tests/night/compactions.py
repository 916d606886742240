"""Compactions that are killed at random moments, several at once, and next to queries.

Nothing is lost, the next compaction ends those that were killed, and every query is answered.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random

from night.finder import always
from night.forks import in_child

import tensortrial
from support.compacted_runs import assert_chunks_are_named, flush, index_files, rows_of
from support.runs import Job
from tensortrial.maintenance.compaction import compact
from tensortrial.read.trial import Trial

KILLS = 5
"""Of one case, at most."""
LONGEST_SECONDS = 0.12
"""Until a kill."""
_context = multiprocessing.get_context("fork")


def write_and_end(run: Path, flushes: int, steps_per_directory: int) -> None:
    """Write a run in a process that ends without closing it: one that closes compacts a small run by itself."""

    def work() -> None:
        flush(Job(run, flush_seconds=3600, steps_per_directory=steps_per_directory), flushes)
        os._exit(0)

    assert in_child(work) == 0


def compacting(run: Path) -> BaseProcess:
    """Start a process that compacts a run."""
    process = _context.Process(target=compact, args=[run], kwargs={"delete_older_than": 0.0})
    process.start()
    return process


def compact_and_kill(run: Path, pauses: list[float], at_once: int) -> int:
    """Kill a compaction after each of some pauses, in seconds, then let several run, and check the run after each.

    Returns:
        How many compactions were killed before they had ended.
    """
    before = rows_of(run)
    whole = shutil.copytree(run, run.with_name("compacted"))
    compact(whole, delete_older_than=0)
    killed = 0
    for pause in pauses:
        process = compacting(run)
        process.join(pause)
        killed += process.is_alive()
        process.kill()
        process.join()
        assert rows_of(run) == before
    processes = [compacting(run) for _ in range(at_once)]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    compact(run, delete_older_than=0)  # each leaves alone what it does not know
    assert index_files(run) == index_files(whole)
    assert rows_of(run) == before
    assert_chunks_are_named(run)
    return killed


def compact_again_and_again(run: Path, enough: Path) -> None:
    """Compact a run and delete at once, when it has begun, until the file `enough` exists."""
    while not enough.exists():
        if (run / "index").exists():
            compact(run, delete_older_than=0)
        time.sleep(0.1)  # a query is repeated five times at most, and a machine may be busy


def query_while_compacting(run: Path, flushes: Sequence[int], steps_per_directory: int) -> None:
    """Query a run after some flushes each, while another process compacts it and deletes at once."""
    enough = run.with_name("enough")
    process = _context.Process(target=compact_again_and_again, args=[run, enough])
    process.start()  # before there are threads
    try:
        with Job(run, flush_seconds=3600, steps_per_directory=steps_per_directory) as job:
            flush(job, 1)
            trial = tensortrial.create_trial(run)
            for count in flushes:
                flush(job, count)
                _check_trial(trial, job.next_global_step)
                _check_runs(run, job.next_global_step)
    finally:
        enough.touch()
        process.join(60)
    assert process.exitcode == 0
    assert not trial.damaged


def _check_trial(trial: Trial, count: int) -> None:
    steps = trial.steps(show_incomplete_steps=True)
    assert steps == [*range(count)]
    with_value = [step for step in steps if step % 3]
    for view, expected in {"tensors": steps, "scalars": steps, "tensor_values": with_value}.items():
        answer = trial.sql(f"select distinct global_step from {view} order by 1")
        assert [row[0] for row in answer.fetchall()] == expected, view
    assert trial.values(["w"], steps)["w"].keys() == set(with_value)
    assert "loss" in trial.tensor_names(step=steps[-1])


def _check_runs(run: Path, count: int) -> None:
    runs = tensortrial.open_runs(run)
    assert not runs.damaged
    for view, expected in {"tensors": count, "tensor_values": sum(step % 3 > 0 for step in range(count))}.items():
        assert runs.sql(f"select count(distinct global_step) from {view}").fetchall() == [(expected,)], view
    assert not runs.damaged


def _case(random: Random, own: Path) -> Counter[str]:
    if random.random() < 1 / 3:
        flushes = [random.randint(1, 4) for _ in range(random.randint(3, 12))]
        query_while_compacting(own / "run", flushes, random.choice([4, 7, 1000]))
        return Counter({"rounds of queries": len(flushes)})
    write_and_end(own / "run", random.randint(10, 100), random.choice([7, 22, 1000]))
    pauses = [random.uniform(0, LONGEST_SECONDS) for _ in range(random.randint(0, KILLS))]
    at_once = random.choice([0, 0, 2, 3])
    killed = compact_and_kill(own / "run", pauses, at_once)
    return Counter({"compactions killed": killed, "compactions ended": len(pauses) - killed + at_once + 1})


prepared = always(_case)
