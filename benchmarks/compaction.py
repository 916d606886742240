"""What compaction gains: a run of 20,000 flushes, one step of 50 tensors each, before and after, in fresh processes.

The limit that a query is held against is DuckDB over one Parquet file of the same rows, sorted by name and step.

    python benchmarks/compaction.py [--flushes 20000]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from common import WORKER, claimed, header, in_fresh_process, line, median_seconds, peak_megabytes, scratch, seconds

PER_STEP = 50
GROUP_BY = "select name, avg({mean}), avg({l2}) from {table} group by name"


def write(out: str, flushes: int) -> None:
    import numpy as np

    from tensortrial.format.record import Plan, Record, Step
    from tensortrial.mode import ModeKeys
    from tensortrial.write.writer import Writer

    plans = [Plan(f"layer{number}.weight", ("weights",), True) for number in range(PER_STEP)]
    values = np.random.default_rng(0).standard_normal((97, 2)).tolist()
    writer = Writer(claimed(out), WORKER, flush_seconds=3600)
    for number in range(flushes):
        saved = [dict(zip(("mean", "l2"), values[(number + index) % 97], strict=True)) for index in range(PER_STEP)]
        records = [
            Record(plan, np.full(8, number, np.float32), number * 10**9, statistics=each)
            for plan, each in zip(plans, saved, strict=True)
        ]
        writer.put(Step(ModeKeys.TRAIN, number, number), records, closes=True)
        writer.flush()
    writer.close()


def read(out: str) -> None:
    """Print the measured seconds and megabytes as JSON."""
    import tensortrial
    from tensortrial.read.trial import run_reader_of

    before = peak_megabytes()
    begun = time.perf_counter()
    trial = tensortrial.create_trial(out)
    steps = trial.steps()
    found = {"open": time.perf_counter() - begun, "names": seconds(trial.tensor_names)}
    names = trial.tensor_names()
    found["megabytes"] = peak_megabytes() - before
    found["first value"] = seconds(lambda: trial.tensor(names[0]).value(steps[len(steps) // 2]))
    found["one step"] = seconds(lambda: trial.values(names, [steps[len(steps) // 3]]))
    found["index of one tensor"] = seconds(lambda: run_reader_of(trial).rows_of_tensors([names[7]]))
    found["one tensor"] = seconds(trial.tensor(names[9]).values)
    found["one tensor again"] = median_seconds(trial.tensor(names[9]).values, 3)
    query = GROUP_BY.format(mean="mean", l2="l2", table="tensors")
    found["group by"] = seconds(lambda: trial.sql(query).fetchall())
    found["group by again"] = median_seconds(lambda: trial.sql(query).fetchall(), 3)
    print(json.dumps(found))


def compacted(out: str) -> None:
    """Compact, and print what it took as JSON."""
    import tensortrial

    begun = time.perf_counter()
    done = tensortrial.compact(out, delete_older_than=0)
    taken = time.perf_counter() - begun
    files, sizes = (done.files_before, done.files_after), (done.bytes_before, done.bytes_after)
    chunks = done.chunks_merged, done.chunks_made
    found = {"seconds": taken, "megabytes": peak_megabytes(), "files": files, "bytes": sizes, "chunks": chunks}
    print(json.dumps(found))


def perfect(out: str) -> float:
    """Seconds of the group by over one file with the same rows, sorted."""
    import duckdb

    import tensortrial

    trial = tensortrial.create_trial(out)
    table = trial.sql("select * from tensors order by name, global_step").to_arrow_table()
    import pyarrow.parquet as pq

    file = Path(out) / ".perfect.parquet"
    pq.write_table(table, file, compression="zstd")
    del table
    query = GROUP_BY.format(mean="mean", l2="l2", table=f"'{file}'")
    connection = duckdb.connect()
    connection.execute(query).fetchall()
    return median_seconds(lambda: connection.execute(query).fetchall(), 5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write")
    parser.add_argument("--read")
    parser.add_argument("--compact")
    parser.add_argument("--perfect")
    parser.add_argument("--flushes", type=int, default=20_000)
    arguments = parser.parse_args()
    if arguments.write:
        write(arguments.write, arguments.flushes)
    elif arguments.read:
        read(arguments.read)
    elif arguments.compact:
        compacted(arguments.compact)
    elif arguments.perfect:
        print(perfect(arguments.perfect))
    else:
        header(f"Compaction: {arguments.flushes} flushes of {PER_STEP} tensors, each a file")
        _measure(arguments.flushes)


def _measure(flushes: int) -> None:
    with scratch() as folder:
        out = folder / "run"
        in_fresh_process(__file__, "--write", out, "--flushes", flushes)
        before = json.loads(in_fresh_process(__file__, "--read", out))
        # Not in this process: the memory of one that has been large counts for its children, too.
        done = json.loads(in_fresh_process(__file__, "--compact", out))
        after = json.loads(in_fresh_process(__file__, "--read", out))
        limit = float(in_fresh_process(__file__, "--perfect", out))
    line("compacting", f"{done['seconds']:.1f} s, {done['seconds'] / flushes * 1e3:.2f} ms a file")
    line("memory for that", f"{done['megabytes']:.0f} MB")
    line("index files", f"{done['files'][0]} -> {done['files'][1]}")
    line("bytes of them", f"{done['bytes'][0] / 1e6:.1f} -> {done['bytes'][1] / 1e6:.1f} MB")
    line("files of raw values", f"{done['chunks'][0]} -> {done['chunks'][1]}")
    line("memory of a reader, beyond the imports", f"{before['megabytes']:.0f} -> {after['megabytes']:.0f} MB")
    labels = {
        "open": "open, and the first steps()",
        "names": "tensor_names()",
        "first value": "the first value of all",
        "one step": "values of one step",
        "index of one tensor": "where one tensor is, at all steps",
        "one tensor": "values of one tensor at all steps, first",
        "one tensor again": "  again",
        "group by": "mean and l2 by name, first",
        "group by again": "  again",
    }
    for what, label in labels.items():
        line(label, f"{before[what] * 1e3:.1f} -> {after[what] * 1e3:.1f} ms")
    ratio = after["group by again"] / limit
    line("  against DuckDB over one sorted file", f"{limit * 1e3:.1f} ms: {ratio:.1f}x", "2x")


if __name__ == "__main__":
    main()
