"""Measures what rules and a diagnosis cost, over a run of 1,000 tensors, with every rule that works from statistics.

All are CPU times of the process that evaluates them. The limit is the time in which pyarrow reads the same columns of
the same files.

python benchmarks/watching.py
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import cpu_seconds, header, line, scratch, write_index

import tensortrial
from tensortrial import rules

TENSORS = 1000
STEPS = 200
PAUSE = 0.1
LONG_STEPS = 10_000
SAVED = ("abs_mean", "l2", "variance", "min", "max", "abs_max", "nan_count", "inf_count", "zero_count")
# The columns that rules read.
COLUMNS = ("name", "worker", "dtype", "shape", "global_step", "mode", "mode_step", "scalar")
LIVE = (*COLUMNS, "l2", "abs_mean", "variance", "min", "max", "mean", "abs_max", "nan_count", "inf_count", "zero_count")
DIAGNOSED = (*COLUMNS, "l2", "abs_mean", "nan_count", "inf_count", "zero_count")


def write(out: str, pause: float) -> None:
    """A job of 100 weights and their gradients, as statistics, and a loss; each step is published as it closes."""
    reductions = SAVED[2:5] + SAVED[6:]
    statistics = tensortrial.ReductionConfig(reductions=reductions, norms=["l2"], abs_reductions=["mean", "max"])
    rng = np.random.default_rng(0)
    with tensortrial.Run(out, reduction_config=statistics, flush_seconds=0) as run:
        for step in range(STEPS):
            with run.step():
                values = rng.normal(0, 0.1, (TENSORS // 2, 256)).astype(np.float32)
                for i, value in enumerate(values):
                    run.save_tensor(f"layer{i}.relu_input_0", value * (1 + step), "weights")
                    run.save_tensor(f"gradient/layer{i}", value, "gradients")
                run.save_tensor("loss", np.array(10.0 / (1 + step)), "losses")
            time.sleep(pause)


def every_rule(trial: tensortrial.Trial) -> list[rules.Rule]:
    return [
        rules.VanishingGradient(trial),
        rules.ExplodingTensor(trial),
        rules.PoorWeightInitialization(trial),
        rules.TensorVariance(trial, collection_names="weights,gradients", max_threshold=1e9),
        rules.AllZero(trial, collection_names="weights,gradients"),
        rules.UnchangedTensor(trial, collection_names="weights"),
        rules.LossNotDecreasing(trial),
        rules.Overfit(trial),
        rules.Overtraining(trial, delta=0),
        rules.StalledTraining(trial),
        rules.LossSpike(trial),
        rules.GradientNormSpike(trial),
        rules.RankDivergence(trial),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", nargs=2, metavar=("OUT", "PAUSE"))
    arguments = parser.parse_args()
    if arguments.write:
        write(arguments.write[0], float(arguments.write[1]))
        return
    header(f"Watching {TENSORS} tensors of which {len(SAVED)} statistics are saved, over {STEPS} steps")
    with scratch() as folder:
        with subprocess.Popen([sys.executable, __file__, "--write", str(folder / "run"), str(PAUSE)]):
            measure(str(folder / "run"), "live, each step as it comes")
        measure(str(folder / "run"), "afterwards, in one go")
        limit = read(str(folder / "run"), LIVE)
        line("reading the columns of these files by pyarrow", f"{1000 * limit / STEPS:.1f} ms of CPU a step")
        begun = time.process_time()
        diagnosis = tensortrial.diagnose(folder / "run")
        seconds = time.process_time() - begun
        rows = (TENSORS + 1) * STEPS
        line(f"a diagnosis of {rows:,} rows", f"{1e6 * seconds / rows:.1f} us of CPU a row", "0.05 us")
        assert diagnosis.steps == STEPS
        line(
            "a diagnosis of raw values without statistics",
            f"{diagnosed_values(str(folder / 'raw')):.0f} us of CPU a row",
        )
        long_run = str(folder / "long")
        write_long(long_run)
        begun, rows = time.process_time(), (TENSORS + 1) * LONG_STEPS
        assert not tensortrial.diagnose(long_run).problems
        seconds, limit = time.process_time() - begun, read(long_run, DIAGNOSED)
        line(f"a diagnosis of {rows:,} rows, compacted", f"{seconds:.2f} s of CPU", "0.5 s")
        line("reading the columns of these files by pyarrow", f"{limit:.2f} s: {seconds / limit:.1f}x")
        short, long = (diagnosed(str(folder / f"{steps}"), steps) for steps in (2_000, 16_000))
        line("a diagnosis of a loss at 16,000 steps", f"{long:.1f} s of CPU, {long / short:.1f}x of 2,000 steps", "8x")


def read(run: str, columns: tuple[str, ...]) -> float:
    """Return the CPU seconds in which pyarrow reads some columns of the index."""
    begun = time.process_time()
    for path in Path(run).glob("index/**/*.parquet"):
        pq.ParquetFile(path).read(columns=list(columns), use_threads=False)
    return time.process_time() - begun


def write_long(out: str) -> None:
    """Write the index of a job of 10,000 steps that goes well, with the tensors and statistics of `write`."""
    rng, pairs = np.random.default_rng(0), TENSORS // 2
    tensors = {f"layer{i}.relu_input_0": "weights" for i in range(pairs)}
    tensors |= {f"gradient/layer{i}": "gradients" for i in range(pairs)}

    def columns_of(steps: np.ndarray) -> dict[str, pa.Array]:
        is_loss = np.tile(np.arange(TENSORS + 1) == TENSORS, len(steps))
        dimensions = np.concatenate([[0], np.cumsum(~is_loss)]).astype(np.int32)
        shapes = pa.ListArray.from_arrays(pa.array(dimensions), pa.array(np.full(dimensions[-1], 64)))
        losses = pa.array(np.repeat(10 / (1 + steps), TENSORS + 1).astype(np.float32), pa.float64(), mask=~is_loss)
        found = {name: rng.normal(1, 0.01, len(is_loss)) for name in SAVED if not name.endswith("count")}
        found |= {name: np.zeros(len(is_loss)) for name in SAVED if name.endswith("count")}
        columns = {name: pa.array(values, mask=is_loss) for name, values in found.items()}
        return {**columns, "shape": shapes, "scalar": losses}

    write_index(out, {**tensors, "loss": "losses"}, LONG_STEPS, columns_of)


def diagnosed(out: str, steps: int) -> float:
    """Return the CPU seconds of the diagnosis of a loss that falls over so many steps."""
    with tensortrial.Run(out) as run:
        for step in range(steps):
            with run.step():
                run.save_scalar("loss", 1 / (step + 1))
    return cpu_seconds(lambda: tensortrial.diagnose(out))


def diagnosed_values(out: str) -> float:
    """Return the CPU microseconds a row of the diagnosis of a run that has raw values only."""
    rng, weights, steps = np.random.default_rng(0), 200, 40
    with tensortrial.Run(out) as run:
        for step in range(steps):
            with run.step():
                for i, value in enumerate(rng.normal(0, 0.1, (weights, 16, 16)).astype(np.float32)):
                    run.save_tensor(f"layer{i}/weight", value * (1 + step % 7), "weights")
                    run.save_tensor(f"gradient/layer{i}", value, "gradients")
    return 1e6 * cpu_seconds(lambda: tensortrial.diagnose(out)) / (2 * weights * steps)


def measure(run: str, what: str) -> None:
    trial = tensortrial.create_trial(run, timeout=30)
    made = every_rule(trial)
    begun = time.process_time()
    found = list(rules.watch(trial, made, record=False, poll_seconds=0.05))
    seconds = time.process_time() - begun
    steps = len(trial.steps())
    assert steps == STEPS
    assert not found, found[:1]
    line(f"{what}, {len(made)} rules", f"{1000 * seconds / steps:.1f} ms of CPU a step", "under 5 ms")


if __name__ == "__main__":
    main()
