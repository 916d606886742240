"""Writes small runs to damage."""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

import tensortrial
from support.plain_hook import WorkerHook
from support.runs import CREATED, EVAL, TRAIN, Job
from tensortrial.config.reduction_config import ReductionConfig
from tensortrial.format.checksum import document_bytes
from tensortrial.format.schema import MANIFEST, STOP_FILE, LostInfo, lost_path
from tensortrial.maintenance.compaction import compact
from tensortrial.rules.finding import Finding, FindingLog
from tensortrial.storage.open import open_storage

_T = TypeVar("_T")


def in_own_process(work: Callable[[], _T], folder: Path) -> _T:
    """Do it in a process of its own: the threads that it starts would be missing in what is forked later."""
    process = os.fork()
    if not process:
        try:
            (folder / "templates.pickle").write_bytes(pickle.dumps(work()))
            os._exit(0)
        except BaseException:  # noqa: BLE001 - the process ends
            traceback.print_exc()
            os._exit(1)
    if os.waitpid(process, 0)[1]:
        raise RuntimeError("the runs to damage could not be made")
    return pickle.loads((folder / "templates.pickle").read_bytes())  # type: ignore[no-any-return]


STATISTICS = ("min", "max", "mean", "l2", "nan_count")


def write_run(folder: Path, workers: int = 1, codec: str = "none") -> Path:
    jobs = [Job(folder, f"worker_{rank}", workers, codec=codec, flush_seconds=3600) for rank in range(workers)]
    for step in range(6):
        for rank, job in enumerate(jobs):
            weights = np.arange(12, dtype=np.float32).reshape(3, 4) + 100 * rank + step
            # Alike and of the same length at every step, but for a worker and a step.
            values = {
                "loss": (1.0 + rank) / (step + 1),
                "w": ({"statistics": STATISTICS, "histogram": True, "collections": ("weights",)}, weights),
                "input": ({"collections": ("inputs",)}, np.full(5, step, np.int64)),
                "norms": ({"raw": False, "statistics": STATISTICS}, weights),
            }
            job.step(values, TRAIN if step % 3 else EVAL)
            if step % 2:
                job.flush()
    for job in jobs:
        job.close()
    log = FindingLog(jobs[0].storage)
    log.add([Finding("r", None, None, None, None, None, None, "s")])
    log.flush()
    return folder


def write_closed_run(folder: Path, steps: int = 4) -> Path:
    """Write a run with a file of each kind: two workers ended it in an object store, where it was compacted."""
    storage = open_storage(f"memory://written/{folder.name}")
    form = ReductionConfig(["min", "max"], save_raw_tensor=True)
    hooks = [WorkerHook(storage.url, rank, 2, reduction_config=form) for rank in range(2)]
    for step in range(steps):
        for rank, hook in enumerate(hooks):
            with hook.step():
                hook.save_scalar("loss", (1.0 + rank) / (step + 1))
                hook.save_tensor("w", np.arange(3.0) + 100 * rank + step)
                hook.save_tensor("norms", np.arange(3.0) + step)
            hook.flush()
    for hook in hooks:
        hook.close()
    log = FindingLog(storage)
    log.add([Finding("r", None, None, None, None, None, None, "s")])
    log.flush()
    compact(storage.url, delete_older_than=0)
    tensortrial.annotate(storage.url, note="a note", tags=["tag"])
    storage.create(STOP_FILE, document_bytes({"reason": "a reason"}))
    lost = LostInfo("tensors/lost.parquet", "a reason", CREATED)
    storage.create(lost_path(lost.path), lost.to_bytes())
    for path in (file.path for file in storage.walk()):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(storage.read(path))
    assert (folder / MANIFEST).exists()
    return folder
