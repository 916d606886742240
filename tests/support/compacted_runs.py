"""Runs to compact, and all that a reader sees of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import tensortrial
from support.runs import EVAL, TRAIN, Job
from tensortrial.read.trial import Trial

Rows = list[tuple[Any, ...]]


def write(folder: Path | str, flushes: int, worker: str = "worker_0", num_workers: int = 1, **how: Any) -> None:
    with Job(folder, worker, num_workers, flush_seconds=3600, **how) as job:
        flush(job, flushes)


def flush(job: Job, flushes: int) -> None:
    for _ in range(flushes):
        number = job.next_global_step
        values = {"w": np.arange(4.0) + number, "loss": number / 2} if number % 3 else {"loss": number / 2}
        job.publish(values, mode=EVAL if number % 5 == 4 else TRAIN, statistics=("min", "l2"), histogram=True)


def kill(folder: Path) -> None:
    """Make a run that has ended one that still runs, as far as readers can tell."""
    for mark in (folder / "end").glob("*.json"):
        mark.unlink()


def index_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("index/*/*/*.parquet"))


def assert_chunks_are_named(folder: Path) -> None:
    """Nothing is left behind, and nothing is missing."""
    there = {str(path.relative_to(folder)) for path in folder.glob("tensors/*/*/*/*.parquet")}
    named = tensortrial.create_trial(folder).sql("select distinct chunk from tensors where chunk is not null")
    assert {chunk for (chunk,) in named.fetchall()} == there


def rows_of(run: Path | str, **options: Any) -> Rows:
    """Every row of the index, every step, and every value."""
    trial = tensortrial.create_trial(run, **options)
    found = rows_seen(trial)
    trial.close()
    return found


def rows_seen(trial: Trial) -> Rows:
    # Where the values are is what compaction changes.
    location = 'chunk, "offset", row_group, "row", parts'
    query = f"select * exclude ({location}) from tensors order by worker, global_step, name"
    rows = trial.sql(query).fetchall()
    rows += trial.sql("select worker, global_step, name, part, value from tensor_values order by all").fetchall()
    by_view = trial.sql("select worker, global_step, mode, num_tensors from steps order by all").fetchall()
    steps = trial.steps(show_incomplete_steps=True)
    values = {name: trial.tensor(name).values(worker=None) for name in trial.tensor_names()}
    assert sorted({step for by_step in values.values() for step in by_step}) == steps
    for step in steps[:: max(1, len(steps) // 7)]:
        assert trial.tensor("loss").value(step) == step / 2
    return [*rows, *by_view, *steps, json.dumps(values, default=np.ndarray.tolist)]  # type: ignore[list-item]
