"""What verifying a run costs: `tensortrial.verify` as a ratio to a plain read of the same bytes.

The plain read reads each file of the run into one buffer. Both read from the page cache, so that the ratio is that of
the processor's work: from a disk or a bucket it is smaller. Times are CPU times of the process, the least of several
turns, because a busy machine changes these least.

    python benchmarks/verify.py
    python benchmarks/verify.py --turns 9 --megabytes 1024
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from common import header, line, scratch
from writing import write_run

import tensortrial

CASES = {4_000: 200, 100_000: 40, 4 << 20: 4}
"""By the bytes of a value: how many come at each step."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=256, help="of each case")
    options = parser.parse_args()
    header("What verifying a run costs")
    for nbytes, per_step in CASES.items():
        steps = max(1, options.megabytes * 1_000_000 // (nbytes * per_step))
        print(f"\n{steps * per_step} values of {nbytes} bytes")
        with scratch() as folder:
            write_run(folder / "run", nbytes, per_step, steps)
            compare(folder / "run", steps * per_step, options.turns)


def compare(run: Path, values: int, turns: int) -> None:
    """Print what verifying a run takes, next to reading its files."""
    report = tensortrial.verify(run)
    assert report.is_whole, report
    assert report.values == values, report
    ours, plain = (
        min(used(call) for _ in range(turns)) for call in ((lambda: tensortrial.verify(run)), lambda: read(run))
    )
    line("reading", f"{plain / report.nbytes * 1e9:.3f} ns a byte")
    line("verifying", f"{ours / report.nbytes * 1e9:.3f} ns a byte, {ours / values * 1e6:.1f} us a value")
    line("verifying, to reading", f"{ours / plain:.2f}x")


def read(run: Path) -> None:
    """Read all files of a run, one after another."""
    buffer = memoryview(bytearray(1 << 20))
    for path in run.rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass


def used(call: Callable[[], object]) -> float:
    """Return the CPU time of a call, in seconds."""
    begun = time.process_time()
    call()
    return time.process_time() - begun


if __name__ == "__main__":
    main()
