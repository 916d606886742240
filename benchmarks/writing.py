"""How fast a run is written: through the recorder, with its copy of each value, against one plain file.

Every case is a process of its own, in turns. "Speed of one plain file" of the same bytes is by the clock, from the
first value to the last byte that other processes can read, with the imports done. The CPU times say who works for it,
and a busy machine changes them less: the training's thread, which copies, and the writer's; of both, the kernel's part.

    python benchmarks/writing.py
    python benchmarks/writing.py --case 4000 --megabytes 256
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import time
from pathlib import Path

import numpy as np
from common import CALL_BYTES, header, in_fresh_process, line, scratch

from tensortrial.hooks.core.configuration.options import Framework, HookOptions
from tensortrial.hooks.core.process.rank import Rank
from tensortrial.hooks.core.recorder import Recorder
from tensortrial.mode import ModeKeys

SCALAR = 8
CASES = {4 << 20: (4, "0.9x"), 100_000: (40, ""), 4_000: (200, "0.6x"), SCALAR: (500, "")}
"""By the bytes of a value: how many come at each step, and the aim."""


def arrays_of(nbytes: int, count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(nbytes // 4, dtype=np.float32) for _ in range(count)]


def write_run(folder: Path, nbytes: int, per_step: int, steps: int) -> list[float]:
    """Record `steps` steps of `per_step` values each. Return seconds: by the clock, of this thread, of the writer's
    thread, and of these the kernel's."""
    options = HookOptions(folder, include_regex=".", save_config={"save_interval": 1})
    recorder = Recorder(options, Framework("none"), Rank())
    recorder.set_mode(ModeKeys.TRAIN)
    names = [f"tensor_{number}" for number in range(per_step)]
    arrays = arrays_of(nbytes, per_step) if nbytes != SCALAR else []
    recorder.begin_step()
    recorder.save_scalars([("first", 0.0)])
    recorder.end_step()
    recorder.flush()  # and its thread has imported what it needs
    begun, own, used, kernel = _now()
    for step in range(steps):
        recorder.begin_step()
        if nbytes == SCALAR:
            recorder.save_scalars((name, float(step)) for name in names)
        else:
            for name, array in zip(names, arrays, strict=True):
                recorder.record(recorder.planner.plan(name), array)
    own = time.thread_time() - own
    recorder.close()
    ended, _, used_at_end, kernel_at_end = _now()
    return [ended - begun, own, used_at_end - used - own, kernel_at_end - kernel]


def write_plain(path: Path, nbytes: int, per_step: int, steps: int) -> list[float]:
    """The same bytes into one file, in the same order, each value by one call, or by several if it is large."""
    values = [memoryview(array).cast("B") for array in arrays_of(nbytes, per_step)]
    pieces = [value[begin : begin + CALL_BYTES] for value in values for begin in range(0, nbytes, CALL_BYTES)]
    begun, own, _, kernel = _now()
    with open(path, "wb", buffering=0) as file:
        for _ in range(steps):
            for piece in pieces:
                file.write(piece)
    ended, own_at_end, _, kernel_at_end = _now()
    return [ended - begun, own_at_end - own, 0.0, kernel_at_end - kernel]


def _now() -> tuple[float, float, float, float]:
    return (
        time.perf_counter(),
        time.thread_time(),
        time.process_time(),
        resource.getrusage(resource.RUSAGE_SELF).ru_stime,
    )


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def compare(nbytes: int, megabytes: int, rounds: int) -> None:
    """Print the lines of one size."""
    per_step, aim = CASES[nbytes]
    steps = 2000 if nbytes == SCALAR else max(1, (megabytes << 20) // nbytes // per_step)
    count = steps * per_step
    runs, files = [], []
    for _ in range(rounds):
        if nbytes != SCALAR:
            files.append(_measure("plain", nbytes, steps))
        runs.append(_measure("run", nbytes, steps))
    # The best of each: now and then the kernel writes back in the middle of one, and it takes ten times as long.
    clock, _, _, _, size = map(min, zip(*runs, strict=True))
    _, own, writer, kernel, _ = map(statistics.median, zip(*runs, strict=True))
    what = "a scalar" if nbytes == SCALAR else f"tensors of {nbytes // 1000} kB"
    if files:
        plain, plain_cpu = min(file[0] for file in files), statistics.median(file[1] for file in files)
        medians = statistics.median(file[0] for file in files) / statistics.median(run[0] for run in runs)
        line(f"{what}: speed of one plain file", f"{plain / clock:.2f}x (medians {medians:.2f}x)", aim)
        line("", f"{count * nbytes / clock / 1e9:.2f} GB/s, {size / (count * nbytes):.4f} bytes a byte")
        line(
            "  CPU of one plain file to that of",
            f"writer {plain_cpu / writer:.2f}x, both {plain_cpu / (own + writer):.2f}x",
        )
    else:
        line(f"{what}, until it is on disk", f"{clock / count * 1e6:.2f} us, {size / count:.1f} bytes")
    each = [f"{1e6 * seconds / count:.2f}" for seconds in (own, writer, kernel)]
    line(
        "  CPU each: training's thread, writer's (kernel, both)",
        f"{each[0]} us, {each[1]} us ({each[2]} us)",
        "5 us" if nbytes == SCALAR else "",
    )


def _measure(how: str, nbytes: int, steps: int) -> list[float]:
    with scratch() as folder:
        printed: list[float] = json.loads(
            in_fresh_process(__file__, "--how", how, "--case", nbytes, "--steps", steps, "--out", folder)
        )
        size = bytes_in(folder)
    os.sync()
    return [*printed, size]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", type=int, action="append", choices=list(CASES), help="bytes of a value")
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--how", choices=["run", "plain"], help="write once, into --out")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.how:
        (nbytes,) = arguments.case
        write = write_run if arguments.how == "run" else write_plain
        print(json.dumps(write(arguments.out / arguments.how, nbytes, CASES[nbytes][0], arguments.steps)))
        return
    header("Writing, through the recorder")
    for nbytes in arguments.case or CASES:
        compare(nbytes, arguments.megabytes, arguments.rounds)


if __name__ == "__main__":
    main()
