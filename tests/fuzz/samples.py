"""Writes small runs to damage."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from support.runs import EVAL, TRAIN, Job
from tensortrial.rules.finding import Finding, FindingLog

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
