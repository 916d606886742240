"""Writes the golden run of the current format: `PYTHONPATH=tests python tests/golden/write.py tests/golden/format-1`.

Run once for each format. What it wrote is committed and read forever (tests/tensorstore/format/test_golden.py); never
write over a golden run that was released.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from support.runs import EVAL, GLOBAL, PREDICT, TRAIN, Job
from tensortrial.config.collection import Collection
from tensortrial.statistics.definitions import STATISTICS

MODES = [TRAIN, TRAIN, EVAL, TRAIN, PREDICT, GLOBAL, TRAIN]
WORKERS = ("worker_0", "gpu:0/é")
STATISTICS_ONLY = {
    "statistics": ("min", "max", "abs_mean", "l2", "nan_count"),
    "raw": False,
    "collections": ("reduced",),
}
EVERYTHING = {"statistics": STATISTICS, "histogram": True, "collections": ("weights",)}


def values_of(step: int, rank: int) -> dict[str, Any]:
    """The values that a worker saves at a global step: what a reader must find."""
    seed = float(10 * step + rank)
    kinds = {
        **{
            f"kind/{kind}": np.arange(4).astype(kind)
            for kind in ["?", "b", "B", "h", "H", "i", "I", "q", "Q", "e", "f", "d", "F", "D"]
        },
        **{
            f"kind/{kind}": np.array([seed, 0.5, -2], getattr(ml_dtypes, kind))
            for kind in ("bfloat16", "float8_e4m3fn")
        },
        "kind/text": np.array(["gpu", "☃", ""], "U4"),
        "kind/bytes": np.array([b"ab", b"\0c"], "S2"),
        "kind/time": np.array(["2026-01-01T00:00:00", "NaT"], "M8[s]"),
        "kind/fields": np.array([(1.5, [2, 3])], [("a", "<f4"), ("b", "<i2", (2,))]),
        "kind/big-endian": np.arange(3, dtype=">i4"),
        "kind/large int": np.array(2**63 - 1),
    }
    return {
        "loss": seed,
        "weight": np.linspace(-1, 1, 12).reshape(3, 4) * seed,
        "empty": np.zeros((2, 0, 3), np.float32),
        "scalar": np.array(seed, np.int16),
        "nan": np.array([np.nan, np.inf, -0.0]),
        '../a name/\'of\n"data"': np.full(3, seed, np.float32),
        **(kinds if step == 3 else {}),
    }


def write(folder: Path, codec: str) -> None:
    """One run of two workers, of which the second skips global step 1, in three flushes."""
    collections = [Collection("weights", include_regex="weight"), Collection("reduced", tensor_names=["reduced"])]
    options = {"codec": codec, "steps_per_directory": 4, "flush_seconds": 3600, "part_bytes": 64}
    jobs = [Job(folder, worker, 2, collections=collections, saved=["weights"], **options) for worker in WORKERS]
    for rank, job in enumerate(jobs):
        for step, mode in enumerate(MODES):
            if rank and step == 1:
                job.skip(mode)
                continue
            values = values_of(step, rank)
            weight = values.pop("weight")
            job.step({**values, "weight": (EVERYTHING, weight), "reduced": (STATISTICS_ONLY, weight)}, mode=mode)
            if step in (2, 4):
                job.flush()
        job.close()


if __name__ == "__main__":
    for name in ("none", "zstd"):
        write(Path(sys.argv[1]) / name, name)
