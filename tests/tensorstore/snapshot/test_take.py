"""Whatever reads a run reads the index files that `take` has found: a file that it loses is missing everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import tensortrial
from support.limits import keep_index_files
from support.runs import Job
from tensortrial.snapshot import snapshot
from tensortrial.storage.open import open_storage
from tensortrial.write.claim import saved_steps

STEPS = 4


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with an index file and a chunk for each step."""
    keep_index_files(monkeypatch)
    folder = tmp_path / "run"
    with Job(folder, flush_seconds=3600) as job:
        for step in range(STEPS):
            job.publish({"w": np.full(3, step)})
    return folder


def exported(run: Path) -> int:
    target = run.with_name("target.duckdb")
    tensortrial.export(run, target, tables=["steps"], progress=False)
    with duckdb.connect(str(target)) as database:
        return len(database.sql("select global_step from steps").fetchall())


def queried(run: Path) -> int:
    return len(tensortrial.create_trial(run).sql("select * from tensors").fetchall())


def compared(run: Path) -> int:
    return int(tensortrial.compare(run, run).rows)


STEPS_FOUND_BY: dict[str, Callable[[Path], int]] = {
    "steps": lambda run: len(tensortrial.create_trial(run).steps()),
    "values": lambda run: len(tensortrial.create_trial(run).tensor("w").values()),
    "sql": queried,
    "many runs": lambda run: len(tensortrial.open_runs(run).sql("select * from steps").fetchall()),
    "id": lambda run: len(tensortrial.create_trial(run, snapshot=tensortrial.create_trial(run).snapshot.id).steps()),
    "compare": compared,
    "export": exported,
    "verify": lambda run: tensortrial.create_trial(run).verify().rows,
    "compact": lambda run: tensortrial.compact(run).files_before,
    "repair": lambda run: STEPS - len(tensortrial.repair(run, delete_older_than=0, dry_run=True).removed),
    "resume": lambda run: len(saved_steps(open_storage(run))["worker_0"]),
}


@pytest.mark.parametrize("found_by", STEPS_FOUND_BY)
@pytest.mark.parametrize("loses", [False, True], ids=["whole", "loses a file"])
def test_a_file_that_a_snapshot_lacks_is_missing_everywhere(
    run: Path, monkeypatch: pytest.MonkeyPatch, found_by: str, loses: bool
) -> None:
    """The defect is planted: a file that is really gone is one that each reader reports."""
    read = snapshot.read_index

    def is_lost(path: str) -> bool:
        return loses and path.endswith("/00000001.parquet")

    def losing(*args: Any, **options: Any) -> tuple[Any, Any]:
        index, files = read(*args, **options)
        held = {of: {path: inside[path] for path in inside if not is_lost(path)} for of, inside in index.held.items()}
        return replace(index, held=held), [file for file in files if not is_lost(file.path)]

    monkeypatch.setattr(snapshot, "read_index", losing)
    assert STEPS_FOUND_BY[found_by](run) == STEPS - loses


def test_steps_names_values_and_reductions_start_no_engine(run: Path) -> None:
    program = """
import sys, tensortrial
with tensortrial.create_trial(sys.argv[1]) as trial:
    tensor = trial.tensor(trial.tensor_names()[0])
    print(trial.steps(), tensor.value(1).tolist(), tensor.reduction(2, "mean"), len(tensor.values()), trial.snapshot)
print([name for name in sys.modules if name in ("duckdb", "tensortrial.engines.duckdb")])
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", program, str(run)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == f"[0, 1, 2, 3] [1, 1, 1] 2.0 4 {tensortrial.create_trial(run).snapshot}\n[]\n"
