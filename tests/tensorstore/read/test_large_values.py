"""Values of many megabytes, which several threads read, are those that were saved, or a named error."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tensortrial
from support.runs import Job
from tensortrial.errors import CorruptFile

STEPS = 4
KINDS: dict[str, Any] = {
    "bfloat16": np.arange(700_000).astype(ml_dtypes.bfloat16),
    "empty": np.zeros((0, 3), np.float32),
    "float8": np.arange(9).astype(ml_dtypes.float8_e4m3fn),
    "large": np.arange(1_500_000, dtype=np.float32),
    "nan": np.full(300_000, np.nan),
    "number": np.array(1.5),
    "strided": np.arange(400_000, dtype=np.int32).reshape(500, 800)[:, ::2],
    "text": np.array(["a", "üb"]),
}


def value_of(name: str, step: int) -> Any:
    value = KINDS[name]
    return value if name == "text" else value + value.dtype.type(step)


def write(folder: Path, **options: Any) -> Path:
    with Job(folder, **options) as job:
        for step in range(STEPS):
            job.step({name: value_of(name, step) for name in KINDS})
    return folder


def check(run: Path) -> None:
    with tensortrial.create_trial(run) as trial:
        found = trial.values(list(KINDS))
    assert found.keys() == KINDS.keys()
    for name, by_step in found.items():
        assert list(by_step) == list(range(STEPS))
        for step, value in by_step.items():
            expected = value_of(name, step)
            assert (value.dtype, value.shape) == (expected.dtype, expected.shape)
            assert value.tobytes() == expected.tobytes(), (name, step)
            assert value.flags.writeable


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_they_are_those_that_were_saved(codec: str, tmp_path: Path) -> None:
    check(write(tmp_path / "run", codec=codec))


def test_a_damaged_one_of_them_is_named(tmp_path: Path) -> None:
    run = write(tmp_path / "run")
    with tensortrial.create_trial(run) as trial:
        query = "select chunk, \"offset\" from tensors where name = 'large' and global_step = 2"
        ((chunk, offset),) = trial.sql(query).fetchall()
        with (run / chunk).open("r+b") as file:
            file.seek(offset + 5_000_000)
            file.write(b"\xff")
        with pytest.raises(CorruptFile, match="'large' at step 2 of worker 'worker_0' is damaged") as error:
            trial.values(list(KINDS))
        assert error.value.path == chunk
        assert len(trial.values(["large"], steps=[0, 1, 3])["large"]) == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_reads_them_while_a_thread_does(tmp_path: Path) -> None:
    run = write(tmp_path / "run")
    with tensortrial.create_trial(run) as trial:
        thread = threading.Thread(target=lambda: [trial.values(["large", "nan"]) for _ in range(20)])
        thread.start()
        child = os.fork()
        if not child:
            try:
                check(run)
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        thread.join()
