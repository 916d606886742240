"""How fast a run is read: 2000 steps x 500 scalars, and 1000 steps x 200 tensors of 4 kB, each in a fresh process.

A value is held against `np.load(mmap_mode="r")` of a file of its own and one pread of the same bytes; all values of a
tensor against one plain file of the same bytes; a mean by name against DuckDB over one Parquet file of the same rows,
sorted by name and step. Each ratio is the median of pairs that were measured in turn.

    python benchmarks/reading.py
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from common import header, in_fresh_process, line, median_seconds, peak_megabytes, scratch, seconds

if TYPE_CHECKING:
    import tensortrial

KINDS = {"scalars": (2000, 500), "tensors": (1000, 200)}


def write(kind: str, out: str, close: bool = True) -> None:
    import tensortrial

    steps, per_step = KINDS[kind]
    run = tensortrial.Run(out)
    run.set_mode(tensortrial.modes.TRAIN)
    pool = [np.random.default_rng(i).standard_normal(1000, dtype=np.float32) for i in range(16)]
    for step in range(steps):
        with run.step():
            for i in range(per_step):
                if kind == "scalars":
                    run.save_scalar(f"t{i:04}", float(step * i % 97))
                else:
                    run.save_tensor(f"t{i:04}", pool[(step + i) % 16])
    if not close:
        run.flush()
        os._exit(0)
    run.close()


def read(kind: str, out: str) -> None:
    """Print the measured seconds and megabytes as JSON."""
    import tensortrial

    before = peak_megabytes()
    begun = time.perf_counter()
    trial = tensortrial.create_trial(out)
    steps = trial.steps()
    found = {"open": time.perf_counter() - begun, "megabytes": peak_megabytes() - before}
    found["first tensor_names"] = seconds(trial.tensor_names)
    found["tensor_names"] = median_seconds(trial.tensor_names, 50)
    found["steps"] = median_seconds(trial.steps, 50)
    found["has_passed_step"] = median_seconds(lambda: trial.has_passed_step(steps[-1] // 2), 50)
    tensor = trial.tensor("t0100")
    found["first value"] = seconds(lambda: tensor.value(steps[7]))
    found["first values"] = seconds(tensor.values)
    found["values"] = median_seconds(tensor.values, 5)
    each = iter(steps[::2])
    found["value"] = median_seconds(lambda: tensor.value(next(each)), 100)
    names = trial.tensor_names(step=steps[9])
    found["one step"] = seconds(lambda: [trial.tensor(name).value(steps[9]) for name in names])
    found |= against_limits(trial, out)
    found["many"] = seconds(lambda: trial.values(names, [steps[11]]))
    found["means"] = seconds(lambda: [tensor.reduction_value(step, "mean") for step in tensor.steps()])
    print(json.dumps(found))


def against_limits(trial: tensortrial.Trial, out: str) -> dict[str, float]:
    """Ratios of CPU time to what the same work takes without a store."""
    import duckdb
    import pyarrow.parquet as pq

    import tensortrial

    names, steps = trial.tensor_names(), trial.steps()
    plain, alone = Path(out) / ".plain", Path(out) / ".alone.npy"
    values = trial.tensor("t0101").values()
    array = np.stack(list(values.values()))
    array.tofile(plain)
    np.save(alone, array[0])
    chosen = random.Random(0)

    def unseen() -> object:
        return trial.tensor(chosen.choice(names)).value(chosen.choice(steps))

    def one_file() -> object:
        return list(np.fromfile(plain, array.dtype).reshape(array.shape))

    with tensortrial.no_refresh(trial):
        found = {
            "value against np.load": ratio(unseen, lambda: np.array(np.load(alone, mmap_mode="r")), 301),
            "values against a file": ratio(trial.tensor("t0101").values, one_file, 11),
        }
        query = "select name, avg(nbytes), max(global_step) from {} group by name"
        table = trial.sql("select * from tensors order by name, global_step").to_arrow_table()
        pq.write_table(table, Path(out) / ".sorted.parquet", compression="zstd")
        perfect = duckdb.connect()
        sorted_file = query.format(f"'{out}/.sorted.parquet'")
        found["group by against a file"] = ratio(
            lambda: trial.sql(query.format("tensors")).fetchall(),
            lambda: perfect.execute(sorted_file).fetchall(),
            5,
            time.process_time,
        )
    return found


def ratio(
    call: Callable[[], object],
    limit: Callable[[], object],
    repeat: int,
    clock: Callable[[], float] = time.thread_time,
) -> float:
    """The median of so many calls to that of as many of the limit, which take turns."""
    taken: list[list[float]] = [[], []]
    for _ in range(repeat):
        for which, each in enumerate((call, limit)):
            begun = clock()
            each()
            taken[which].append(clock() - begun)
    ours, theirs = map(statistics.median, taken)
    return ours / theirs


def pread_seconds() -> float:
    """One pread of 4 kB from a file that is open, and an array of it."""
    with scratch() as folder:
        path = folder / "plain"
        path.write_bytes(bytes(4000 * 1000))
        number = os.open(path, os.O_RDONLY)
        position = iter(range(0, 4000 * 1000, 4000))
        taken = median_seconds(lambda: np.frombuffer(os.pread(number, 4000, next(position)), np.float32), 500)
        os.close(number)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", choices=[*KINDS])
    parser.add_argument("--read", choices=[*KINDS])
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    if arguments.write:
        write(arguments.write, arguments.out, close=not arguments.live)
    elif arguments.read:
        read(arguments.read, arguments.out)
    else:
        header("Reading, in a fresh process, page cache warm")
        for live in (False, True):
            _measure(live)


def _measure(live: bool) -> None:
    state = "of a live run" if live else "of an ended run"
    flag = ["--live"] if live else []
    with scratch() as folder:
        for kind in KINDS:
            in_fresh_process(__file__, "--write", kind, "--out", folder / kind, *flag)
        scalars = json.loads(in_fresh_process(__file__, "--read", "scalars", "--out", folder / "scalars"))
        tensors = json.loads(in_fresh_process(__file__, "--read", "tensors", "--out", folder / "tensors"))
    line(f"1 million scalars {state}: open and first answer", f"{scalars['open']:.3f} s", "0.5 s")
    line("  memory for that, beyond the imports", f"{scalars['megabytes']:.0f} MB", "250 MB")
    for what in ("tensor_names", "steps", "has_passed_step"):
        line(f"  {what}, nothing new", f"{scalars[what] * 1e3:.3f} ms", "1 ms")
    line("  means of one of them, at each of 2000 steps", f"{scalars['means'] * 1e3:.1f} ms")
    line(f"200,000 tensors of 4 kB {state}: open, first answer", f"{tensors['open']:.3f} s")
    line("  first value of all", f"{tensors['first value'] * 1e3:.1f} ms")
    limit = pread_seconds()
    line("  a further value", f"{tensors['value'] * 1e6:.0f} us = {tensors['value'] / limit:.1f}x one pread", "200 us")
    line("  any value at any step, against np.load(mmap)", f"{tensors['value against np.load']:.1f}x", "3x")
    line("  values() of 1000 steps, against one file", f"{tensors['values against a file']:.1f}x", "1.5x")
    line("  a mean by name, against one sorted file", f"{tensors['group by against a file']:.1f}x", "2x")
    line("  values() of 1000 steps, first and again", _milliseconds(tensors, "first values", "values"), "40 ms")
    line("  one step: 200 tensors by value(), by trial.values()", _milliseconds(tensors, "one step", "many"))


def _milliseconds(found: dict[str, float], *what: str) -> str:
    return ", ".join(f"{found[each] * 1e3:.1f} ms" for each in what)


if __name__ == "__main__":
    main()
