"""Runs with very many tensors in a step, names in a run, and bytes in a step of many workers."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from support.plain_hook import Hook
from tensortrial import create_trial
from tensortrial.hooks.core.configuration.options import Framework, HookOptions, accepts_fields_of
from tensortrial.hooks.core.process.rank import Rank
from tensortrial.hooks.core.recorder import Recorder

pytestmark = pytest.mark.slow

# The night runs the full sizes.
IS_FULL = bool(os.environ.get("TENSORTRIAL_TEST_LARGE"))
SIZES = [(1, 10_000), (10, 10_000), (1, 100_000)] if IS_FULL else [(1, 10_000), (10, 2_000)]
WORKERS = 64
WORKER_BYTES = int(os.environ.get("TENSORTRIAL_TEST_WORKER_MB", "2")) << 20
"""Of a step of one worker. With 200, the run takes 12.8 GB of disk."""


@pytest.mark.parametrize(("steps", "per_step"), SIZES)
def test_every_one_of_very_many_tensors_is_found(tmp_path: Path, steps: int, per_step: int) -> None:
    out = str(tmp_path / "run")
    hook = Hook(out)
    for first in range(0, steps * per_step, per_step):
        for number in range(first, first + per_step):
            hook.save_tensor(f"layer/{number}/weight", np.full(8, number, np.int32))
        hook.set_mode("TRAIN")  # closes the step
    hook.close()
    trial = create_trial(out)
    names = [f"layer/{number}/weight" for number in range(steps * per_step)]
    assert sorted(trial.tensor_names()) == sorted(names)
    assert len(trial.tensor_names(step=steps - 1)) == per_step
    assert trial.tensor_names(regex=f"^{names[-1]}$") == [names[-1]]
    assert trial.tensor(names[-1]).steps() == [steps - 1]
    values = trial.values(names, trial.steps())
    for number, name in enumerate(names):
        ((step, value),) = values[name].items()
        assert step == number // per_step
        assert value.tolist() == [number] * 8
    rows = trial.sql("select global_step, count(distinct name) from tensors group by 1 order by 1").fetchall()
    assert rows == [(step, per_step) for step in range(steps)]
    assert trial.verify().is_whole


class WorkerHook(Hook):
    """The hook of one of many workers, in one process."""

    number = 0

    @accepts_fields_of(HookOptions)
    def __init__(self, options: HookOptions) -> None:
        self.recorder = Recorder(options, Framework("none"), Rank(self.number, WORKERS))


def activations(worker: int) -> np.ndarray:
    return np.random.default_rng(worker).integers(0, 1 << 60, WORKER_BYTES // 8)


def test_a_large_step_of_many_workers_is_exact(tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    hooks = [
        type(f"Hook{worker}", (WorkerHook,), {"number": worker})(out, include_workers="all")
        for worker in range(WORKERS)
    ]
    for worker, hook in enumerate(hooks):
        hook.save_scalar("loss", worker)
    for worker, hook in enumerate(hooks):
        hook.save_tensor("activations", activations(worker))
        hook.close()
    trial = create_trial(out)
    assert len(trial.workers()) == WORKERS
    assert trial.steps() == [0]
    for worker in range(WORKERS):
        value = trial.tensor("activations").value(0, worker=f"worker_{worker}")
        assert np.array_equal(value, activations(worker))
    ((workers, nbytes),) = trial.sql(
        "select count(distinct worker), sum(nbytes) from tensors where name = 'activations'"
    ).fetchall()
    assert (workers, nbytes) == (WORKERS, WORKERS * WORKER_BYTES)
    assert trial.verify().is_whole
