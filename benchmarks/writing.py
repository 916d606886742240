"""How fast a run is written: against one plain file of the same bytes, and per value on the training thread.

python benchmarks/writing.py
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

import numpy as np
from common import header, line, scratch

from tensortrial.claim import claim
from tensortrial.hooks.rank import Rank
from tensortrial.hooks.recorder import Recorder
from tensortrial.mode import ModeKeys
from tensortrial.records import Plan, Record, Step
from tensortrial.schema import RunInfo, WorkerInfo
from tensortrial.storage import open_storage
from tensortrial.writer import Writer

TOTAL = 1 << 29
ROUNDS = 7


def write_run(folder: Path, arrays: list[np.ndarray], count: int, per_step: int) -> float:
    """Write `count` arrays through the writer, `per_step` of them a step, and close. The arrays are not copied: what
    is measured is the way to the disk."""
    storage = open_storage(folder)
    claim(storage, RunInfo("2026-01-01T00:00:00+00:00"), WorkerInfo("worker_0", 1, "2026-01-01T00:00:00+00:00", []))
    plans = [Plan(f"tensor_{i}", ("default",), True) for i in range(per_step)]
    begun = time.perf_counter()
    writer = Writer(storage, "worker_0")
    for number in range(count // per_step):
        step = Step(ModeKeys.TRAIN, number, number)
        records = [Record(plan, arrays[i % len(arrays)], time.time_ns()) for i, plan in enumerate(plans)]
        writer.put(step, records, closes=True)
    writer.close()
    return time.perf_counter() - begun


def write_plain(path: Path, arrays: list[np.ndarray], count: int) -> float:
    begun = time.perf_counter()
    with open(path, "wb", buffering=0) as file:
        for i in range(count):
            file.write(arrays[i % len(arrays)])
    return time.perf_counter() - begun


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def tensors(nbytes: int, per_step: int, aim: str) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(nbytes // 4, dtype=np.float32) for _ in range(8)]
    count = TOTAL // nbytes // per_step * per_step
    times: dict[str, list[float]] = {"plain": [], "ours": []}
    size = 0
    for _ in range(ROUNDS):
        with scratch() as folder:
            plain = write_plain(folder / "plain", arrays, count)
            (folder / "plain").unlink()
            os.sync()
            ours = write_run(folder / "run", arrays, count, per_step)
            size = bytes_in(folder / "run")
        os.sync()
        times["plain"].append(plain)
        times["ours"].append(ours)
    # The best of each: now and then the kernel writes back in the middle of one, and it takes ten times as long.
    plain, ours = min(times["plain"]), min(times["ours"])
    median = statistics.median(times["plain"]) / statistics.median(times["ours"])
    line(
        f"tensors of {nbytes // 1000} kB: speed of one plain file", f"{plain / ours:.2f}x (medians {median:.2f}x)", aim
    )
    line("", f"{TOTAL / ours / 1e9:.2f} GB/s, {size / (count * nbytes):.4f} bytes a byte")


def scalars(steps: int = 2000, per_step: int = 500) -> None:
    names = [f"metric_{i}" for i in range(per_step)]
    with scratch() as folder:
        recorder = Recorder(
            folder / "run", framework="none", versions={}, rank=Rank(), builtin=[], always_saved=[], save_config=None
        )
        recorder.set_mode(ModeKeys.TRAIN)
        waited = []
        begun = time.perf_counter()
        for number in range(steps):
            recorder.begin_step()
            before = time.perf_counter()
            for name in names:
                recorder.save_scalar(name, float(number))
            waited.append((time.perf_counter() - before) / per_step)
        recorder.close()
        whole = (time.perf_counter() - begun) / (steps * per_step)
        size = bytes_in(folder / "run") / (steps * per_step)
    line(f"{per_step} scalars a step: training thread, each", f"{statistics.median(waited) * 1e6:.1f} us", "15 us")
    line("", f"{whole * 1e6:.1f} us each until all is on disk, {size:.1f} bytes each")


def main() -> None:
    header("Writing")
    tensors(4 << 20, per_step=4, aim="0.8x")
    tensors(100_000, per_step=40, aim="")
    tensors(4_000, per_step=200, aim="")
    scalars()


if __name__ == "__main__":
    main()
