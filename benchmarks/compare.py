"""What comparing two runs costs: `tensortrial.compare` as a ratio to a plain DuckDB scan of both indexes.

The scan reads the columns that identify a row and its digest, and sums them. Both runs have the same tensors; the
second differs from the first in one digest, in all from the middle on, or nowhere. Each figure is the least of several
turns in fresh processes, with opened files in the page cache. The ratio is that of processor times, over all threads,
because a busy machine changes these least.

    python benchmarks/compare.py
    python benchmarks/compare.py --rows 1000000
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from common import header, in_fresh_process, line, scratch, write_index

PER_STEP = 1000
CASES = ("equal", "one bit", "from the middle on")


def write(out: str, rows: int, case: str) -> None:
    """Write a compacted run of so many rows."""
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(0)

    def columns_of(steps: np.ndarray) -> dict[str, pa.Array]:
        count = len(steps) * PER_STEP
        numbers = steps[0] * PER_STEP + np.arange(count)
        digests = random.integers(0, 2**64, count, dtype=np.uint64)
        if case == "one bit":
            digests[numbers == rows // 2 + 7] ^= np.uint64(1)
        if case == "from the middle on":
            digests[numbers >= rows // 2 + 7] ^= np.uint64(1)
        offsets = np.arange(count + 1, dtype=np.int32)
        return {
            "shape": pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.full(count, 64))),
            "digest": pa.array(digests),
            "order": pa.array((numbers % PER_STEP).astype(np.int32)),
        }

    write_index(
        out, {f"layer{number:03}.weight": "weights" for number in range(PER_STEP)}, rows // PER_STEP, columns_of
    )


def timed(call: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds that a call takes by the clock, and of all processors together."""
    clock, processor = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - clock, time.process_time() - processor


def scan(out: str) -> None:
    """Read with DuckDB what a comparison needs of an index."""
    import duckdb

    paths = sorted(map(str, Path(out).glob("index/**/*.parquet")))
    query = "select count(name), max(mode), sum(mode_step), max(worker), bit_xor(digest) from read_parquet($paths)"
    with duckdb.connect() as connection:
        connection.execute(query, {"paths": paths}).fetchall()


def read(a: str, b: str, case: str) -> None:
    """Print the seconds of the scan, and of the comparison from its first line on, as JSON."""
    import tensortrial
    from tensortrial.comparison import compare

    times = {"scan": timed(lambda: [scan(each) for each in (a, b)])}
    trials: list[tensortrial.Trial] = []
    times["open"] = timed(lambda: trials.extend(tensortrial.create_trial(each) for each in (a, b)))
    found: list[tensortrial.Comparison] = []
    times["compare"] = timed(lambda: found.append(compare(*trials)))
    assert found[0].same == (case == "equal"), found[0]
    print(json.dumps(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        read(*options.one)
        return
    header(f"What comparing two runs of {options.rows:,} rows costs")
    with scratch() as folder:
        for case in CASES:
            write(str(folder / case), options.rows, case)
        for case in CASES:
            arguments = ["--one", folder / CASES[0], folder / case, case]
            turns = [json.loads(in_fresh_process(__file__, *arguments)) for _ in range(3)]
            least = {name: [min(turn[name][i] for turn in turns) for i in range(2)] for name in turns[0]}
            print(f"\n{case}")
            for name, what in (("scan", "scanning both indexes"), ("open", "opening both runs")):
                line(what, f"{least[name][0]:.2f} s, processors {least[name][1]:.2f} s")
            clock, processor = least["compare"]
            line(
                "comparing", f"{clock:.2f} s, processors {processor:.2f} s", "1 s" if options.rows == 10_000_000 else ""
            )
            line("comparing, to scanning", f"{processor / least['scan'][1]:.2f}x")


if __name__ == "__main__":
    sys.exit(main())
