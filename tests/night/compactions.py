"""Compactions that are killed at random moments, and several at once: nothing is lost, and the next one ends them."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random

from night.finder import Case
from night.forks import in_child

from support.compacted_runs import assert_chunks_are_named, flush, index_files, rows_of
from support.runs import Job
from tensortrial.maintenance.compaction import compact

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
    process = _context.Process(target=compact, args=[run], kwargs={"grace": 0.0})
    process.start()
    return process


def compact_and_kill(run: Path, pauses: list[float], at_once: int) -> int:
    """Kill a compaction after each of some pauses, in seconds, then let several run, and check the run after each.

    Returns:
        How many compactions were killed before they had ended.
    """
    before = rows_of(run)
    whole = shutil.copytree(run, run.with_name("compacted"))
    compact(whole, grace=0)
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
    compact(run, grace=0)  # each leaves alone what it does not know
    assert index_files(run) == index_files(whole)
    assert rows_of(run) == before
    assert_chunks_are_named(run)
    return killed


@contextmanager
def prepared(folder: Path) -> Iterator[Case]:
    del folder
    yield _case


def _case(random: Random, own: Path) -> Counter[str]:
    write_and_end(own / "run", random.randint(10, 100), random.choice([7, 22, 1000]))
    pauses = [random.uniform(0, LONGEST_SECONDS) for _ in range(random.randint(0, KILLS))]
    at_once = random.choice([0, 0, 2, 3])
    killed = compact_and_kill(own / "run", pauses, at_once)
    return Counter({"compactions killed": killed, "compactions ended": len(pauses) - killed + at_once + 1})
