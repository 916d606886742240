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

from common import header, in_fresh_process, line, peak_megabytes, scratch, seconds

PER_STEP = 500
STEPS_PER_FILE = 1000
WORKER = "worker_0"
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
    from tensortrial.format.index_types import IndexSummary, NamedTensor, StepSummary
    from tensortrial.format.index_writer import write_compacted
    from tensortrial.format.schema import INDEX_SCHEMA, RunInfo, WorkerInfo, end_path, index_path
    from tensortrial.statistics.definitions import STATISTICS
    from tensortrial.storage.open import open_storage
    from tensortrial.write.claim import claim

    storage = open_storage(out)
    claim(
        storage,
        RunInfo("2026-01-01T00:00:00+00:00", id="measured"),
        WorkerInfo(WORKER, 1, "2026-01-01T00:00:00+00:00", []),
    )
    names = [LOSS, *(f"layer{number:03}.weight" for number in range(1, tensors))]
    is_loss = np.arange(tensors) == 0
    name_set = tuple(NamedTensor(name, ("weights",)) for name in names)
    values = np.random.default_rng(0).standard_normal(4096, np.float32).astype(np.float64)
    previous = ""
    for begin in range(0, steps, STEPS_PER_FILE):
        inside = np.arange(begin, min(begin + STEPS_PER_FILE, steps))
        count = len(inside) * tensors
        each_step = np.repeat(inside, tensors)
        offsets = np.arange(count + 1, dtype=np.int32)
        dimensions = np.concatenate([[0], np.cumsum(np.tile(~is_loss, len(inside)))]).astype(np.int32)
        texts = {"mode": "TRAIN", "worker": WORKER, "dtype": "float32"}
        columns = {name: pa.repeat(pa.scalar(text), count) for name, text in texts.items()}
        columns |= {name: pa.array(np.resize(values, count)) for name in ("mean", "l2")}
        columns |= {name: pa.nulls(count, pa.float64()) for name in STATISTICS if name not in columns}
        columns |= {
            "name": pa.array(names).take(pa.array(np.tile(np.arange(tensors), len(inside)))),
            "mode_step": pa.array(each_step),
            "global_step": pa.array(each_step),
            "shape": pa.ListArray.from_arrays(pa.array(dimensions), pa.array(np.full(dimensions[-1], 64))),
            "nbytes": pa.array(np.full(count, 256)),
            "saved_at": pa.array(each_step * 1_000_000).cast(pa.timestamp("us", tz="UTC")),
            "collections": pa.ListArray.from_arrays(pa.array(offsets), pa.repeat(pa.scalar("weights"), count)),
            "scalar": pa.array(np.resize(values, count), mask=np.tile(~is_loss, len(inside))),
        }
        arrays = [columns[each.name] if each.name in columns else pa.nulls(count, each.type) for each in INDEX_SCHEMA]
        table = pa.Table.from_arrays(arrays, schema=INDEX_SCHEMA)
        said = [StepSummary("TRAIN", step, step, step * 1_000_000, 0) for step in inside.tolist()]
        path = index_path(WORKER, begin, begin).replace(".parquet", f"-{begin + len(inside) - 1:08d}.parquet")
        sink = storage.sink(path)
        write_compacted(sink, table, IndexSummary(count, said, [name_set], [], previous))
        sink.publish()
        previous = path
    if ends:
        end = {"ended_at": "2026-01-01T00:00:00+00:00", "worker": WORKER, "session": 0}
        storage.replace(end_path(WORKER), document_bytes(end))


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
