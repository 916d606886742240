"""Runs that are compared, and diagnosed, while another process writes them."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import tensortrial
from support.meanwhile import Meanwhile
from support.runs import Job

pytestmark = pytest.mark.slow

STEPS = 80
PROGRAM = """
import sys
import numpy as np
from support.runs import Job

with Job(sys.argv[1]) as job:
    for step in range(int(sys.argv[2])):
        job.step({f"x{number}": np.full(8, number + step, np.float32) for number in range(20)})
        if step % 20 == 19:
            job.writer.flush()
            print(step, flush=True)
            sys.stdin.readline()
"""


def write(folder: Path, steps: int = STEPS, worker: str = "worker_0", num_workers: int = 1) -> Path:
    with Job(folder, worker, num_workers) as job:
        for step in range(steps):
            job.step({f"x{number}": np.full(8, number + step, np.float32) for number in range(20)})
    return folder


def test_runs_are_compared_and_diagnosed_while_a_process_writes(tmp_path: Path) -> None:
    whole, growing = write(tmp_path / "whole"), tmp_path / "growing"
    line = [sys.executable, "-c", PROGRAM, str(growing), str(STEPS)]
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": ":".join(sys.path)}
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for at in process.stdout:
            # From here on the process writes, while it is compared.
            process.stdin.write("\n")
            process.stdin.flush()
            for options in ({}, {"atol": 0.5}):
                found = tensortrial.compare(whole, growing, **options)
                assert found.first is None
                assert found.steps > int(at)
                assert (found.only_a.tensors, found.only_a.workers, found.only_b.steps) == ([], [], {})
                assert found.rows == 20 * found.steps
            assert tensortrial.diagnose(growing).is_healthy
    assert process.returncode == 0
    assert tensortrial.compare(whole, growing).same


def test_a_comparison_is_of_one_state_of_a_run(tmp_path: Path) -> None:
    write(tmp_path / "a", 4)
    with Job(tmp_path / "b") as job, tensortrial.create_trial(tmp_path / "b") as b:
        for step in range(2):
            job.step({f"x{number}": np.full(8, number + step, np.float32) for number in range(20)})

        def grow() -> None:
            # Another mode, tensor and steps, between two questions to the run.
            for _ in range(2):
                job.step({"later": np.ones(2)})
            job.writer.flush()

        job.writer.flush()
        found = tensortrial.compare(tmp_path / "a", b, regex=Meanwhile(grow))
    assert (found.steps, found.rows, found.only_b.tensors) == (2, 40, [])


def test_a_step_that_a_worker_has_not_saved_yet_is_not_compared(tmp_path: Path) -> None:
    def save(job: Job, steps: int) -> None:
        for step in range(steps):
            job.step({f"x{number}": np.full(8, number + step, np.float32) for number in range(20)})
        job.writer.flush()

    with ExitStack() as stack:
        for folder, steps in (("a", 4), ("b", 2)):
            first, second = (stack.enter_context(Job(tmp_path / folder, f"worker_{each}", 2)) for each in range(2))
            save(first, 4)
            save(second, steps)
        found = tensortrial.compare(tmp_path / "a", tmp_path / "b")
        assert found.first is None
        assert (found.steps, found.rows) == (2, 80)
        assert found.only_a.steps == {"GLOBAL": [2, 3]}
        assert f"steps that are not complete, and so are not compared: 2 of {found.b}" in str(found)
