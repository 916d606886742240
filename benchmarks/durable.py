"""What `durable=True` costs: a flush with and without, next to a plain write and fsync of the same bytes.

python benchmarks/durable.py
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from common import header, in_fresh_process, line, scratch

TENSORS = 20
SIZES = (("20 scalars", 0), ("20 tensors of 4 kB", 1 << 10), ("20 tensors of 400 kB", 100 << 10))


def flush_seconds(folder: Path, elements: int, durable: bool, flushes: int) -> list[float]:
    """Return how long each flush of one step takes, until another process can read it."""
    import tensortrial

    value, taken = np.zeros(elements, np.float32), []
    with tensortrial.Run(folder / "run", flush_seconds=3600, durable=durable) as run:
        for step in range(flushes + 5):
            with run.step():
                for number in range(TENSORS):
                    if elements:
                        run.save_tensor(f"layer{number}/weight", value + step)
                    else:
                        run.save_scalar(f"metric{number}", step)
            begun = time.perf_counter()
            run.flush()
            taken.append(time.perf_counter() - begun)
    return taken[5:]


def plain_seconds(folder: Path, elements: int, synced: bool, flushes: int) -> list[float]:
    """Return how long it takes to write, and to sync, the same bytes as one new file."""
    data = os.urandom(max(4 * elements * TENSORS, 16 << 10))
    folder.mkdir(exist_ok=True)
    above = os.open(folder, os.O_RDONLY)
    taken = []
    for number in range(flushes):
        begun = time.perf_counter()
        descriptor = os.open(folder / str(number), os.O_WRONLY | os.O_CREAT)
        os.write(descriptor, data)
        if synced:
            os.fsync(descriptor)
        os.close(descriptor)
        if synced:
            os.fsync(above)
        taken.append(time.perf_counter() - begun)
    os.close(above)
    return taken


def measure(kind: str, elements: int, durable: bool, flushes: int) -> float:
    with scratch() as folder:
        call = flush_seconds if kind == "flush" else plain_seconds
        return statistics.median(call(folder, elements, durable, flushes))


def main() -> None:
    if len(sys.argv) == 5:
        print(measure(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True", int(sys.argv[4])))
        return
    header("A flush of one step, with and without durable=True")
    for what, elements in SIZES:
        flushes = 20 if elements > 10_000 else 100
        flush, durable, plain, synced = (
            float(in_fresh_process(__file__, kind, elements, on, flushes))
            for kind in ("flush", "plain")
            for on in (False, True)
        )
        line(f"{what}: a flush", f"{1e3 * flush:.2f} ms, {1 / flush:.0f} steps/s")
        line("durable", f"{1e3 * durable:.2f} ms, {1 / durable:.0f} steps/s, {durable / flush:.1f}x")
        line("one plain file of these bytes", f"{1e3 * plain:.2f} ms")
        line("synced, with its folder", f"{1e3 * synced:.2f} ms; durable is {durable / synced:.1f}x of it")


if __name__ == "__main__":
    main()
