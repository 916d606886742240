"""How the cost of reading grows with a run: from a thousand to 10 and, with --full, 100 million index rows.

The files are made by the code that makes compacted files. A slope of 1 is time in proportion to the rows. The plot goes
to docs/growth.svg with --plot.

    python benchmarks/growth.py [--full] [--plot]
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path

from common import WORKER, header, in_fresh_process, line, peak_megabytes, scratch, seconds, write_index

PER_STEP = 500
LOSS = "loss"
SIZES = [10**power for power in range(3, 9)]
QUESTIONS = {
    "open": "open, first steps()",
    "refresh": "refresh after a flush",
    "steps": "steps() after it",
    "names": "tensor_names()",
    "value": "loss at one step",
    "reduction": "mean of a tensor at one step",
    "one tensor": "one tensor at all steps",
    "group by": "group by name",
}


def write(out: str, steps: int, tensors: int = PER_STEP, ends: bool = False) -> None:
    """Write a run whose index is compacted: a loss and tensors of 64 elements, with their mean and l2."""
    import numpy as np
    import pyarrow as pa

    from tensortrial.format.checksum import document_bytes
    from tensortrial.format.schema import end_path
    from tensortrial.storage.open import open_storage

    is_loss = np.arange(tensors) == 0
    values = np.random.default_rng(0).standard_normal(4096, np.float32).astype(np.float64)

    def columns_of(steps: np.ndarray) -> dict[str, pa.Array]:
        is_tensor = np.tile(~is_loss, len(steps))
        dimensions = np.concatenate([[0], np.cumsum(is_tensor)]).astype(np.int32)
        numbers = np.resize(values, len(is_tensor))
        return {
            "mean": pa.array(numbers),
            "l2": pa.array(numbers),
            "shape": pa.ListArray.from_arrays(pa.array(dimensions), pa.array(np.full(dimensions[-1], 64))),
            "scalar": pa.array(numbers, mask=is_tensor),
        }

    write_index(
        out,
        dict.fromkeys([LOSS, *(f"layer{number:03}.weight" for number in range(1, tensors))], "weights"),
        steps,
        columns_of,
    )
    if ends:
        end = {"ended_at": "2026-01-01T00:00:00+00:00", "worker": WORKER, "session": 0}
        open_storage(out).replace(end_path(WORKER), document_bytes(end))


def flush(out: str, number: int) -> None:
    """One more step, as a writer of the run would publish it."""
    from tensortrial.format.record import Plan, Record, Step
    from tensortrial.format.schema import FirstFlush
    from tensortrial.mode import ModeKeys
    from tensortrial.storage.open import open_storage
    from tensortrial.write.writer import Writer

    writer = Writer(open_storage(out), WORKER, first_flush=FirstFlush(number))
    records = [Record(Plan(f"layer{each:03}.weight", ("weights",), True), 0.5, 0) for each in range(PER_STEP)]
    writer.put(Step(ModeKeys.TRAIN, number, number), records, closes=True)
    writer.flush()


def read(out: str, rows: int) -> None:
    """Print the measured seconds and megabytes as JSON."""
    import tensortrial
    from tensortrial.read.trial import run_reader_of

    before = peak_megabytes()
    begun = time.perf_counter()
    trial = tensortrial.create_trial(out)
    count = len(trial.steps())
    found = {"open": time.perf_counter() - begun, "megabytes": peak_megabytes() - before}
    assert count == rows // PER_STEP
    for number in range(5):
        flush(out, count + number)
        time.sleep(0.2)
        found["refresh"] = min(found.get("refresh", math.inf), seconds(trial.refresh))
    found["steps"] = seconds(trial.steps)
    found["names"] = seconds(trial.tensor_names)
    with tensortrial.no_refresh(trial):
        found["value"] = seconds(lambda: trial.tensor(LOSS).value(count // 2))
        found["reduction"] = seconds(lambda: trial.tensor("layer007.weight").reduction(count // 3, "mean"))
        found["one tensor"] = seconds(lambda: run_reader_of(trial).rows_of_tensors(["layer250.weight"]))
        query = "select name, avg(mean), avg(l2) from tensors group by name"
        found["group by"] = seconds(lambda: trial.sql(query).fetchall())
    print(json.dumps(found))


def slope(sizes: Sequence[int], taken: Sequence[float]) -> float:
    """Return the exponent by which the time grows in the last decade of rows."""
    return math.log(taken[-1] / taken[-2]) / math.log(sizes[-1] / sizes[-2])


def in_short(rows: int) -> str:
    """Return a number of rows with its unit, such as '10 k'."""
    return f"{rows // 1_000_000} M" if rows >= 1_000_000 else f"{rows // 1000} k"


def plot(sizes: Sequence[int], found: Sequence[dict[str, float]], path: Path) -> None:
    """Draw time against rows, both on logarithmic scales."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for what in sorted(QUESTIONS, key=lambda each: -found[-1][each]):
        axes.loglog(sizes, [each[what] for each in found], label=QUESTIONS[what])
    axes.set(xlabel="index rows", ylabel="seconds")
    axes.grid(color="#ddd")
    figure.legend(loc="outside right upper")
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write")
    parser.add_argument("--read")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--full", action="store_true", help="100 million rows as well")
    parser.add_argument("--plot", action="store_true")
    arguments = parser.parse_args()
    if arguments.write:
        write(arguments.write, arguments.rows // PER_STEP)
    elif arguments.read:
        read(arguments.read, arguments.rows)
    else:
        header(f"How cost grows with a run of {PER_STEP} tensors a step, compacted, live")
        _measure(SIZES if arguments.full else SIZES[:-1], arguments.plot)


def _measure(sizes: Sequence[int], plotted: bool) -> None:
    results = []
    for rows in sizes:
        with scratch() as folder:
            out = folder / "run"
            in_fresh_process(__file__, "--write", out, "--rows", rows)
            results.append(json.loads(in_fresh_process(__file__, "--read", out, "--rows", rows)))
    line("index rows", "".join(f"{in_short(rows):>10}" for rows in sizes) + "     slope")
    for what, label in QUESTIONS.items():
        taken = [each[what] for each in results]
        line(label, "".join(f"{each * 1e3:>7.1f} ms" for each in taken) + f"{slope(sizes, taken):>10.2f}")
    line("memory of open, beyond the imports", "".join(f"{each['megabytes']:>7.0f} MB" for each in results))
    if plotted:
        plot(sizes, results, Path(__file__).parent.parent / "docs" / "growth.svg")


if __name__ == "__main__":
    main()
