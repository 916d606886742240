"""The cost of a report of a long run: seconds, memory and bytes. The run has two statistics a tensor and step.

python benchmarks/report.py --tensors 1000 --steps 100000
python benchmarks/report.py --run RUN
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

from common import header, scratch
from growth import write

from tensortrial.pages.report import report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tensors", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--run", help="a run that exists")
    chosen = parser.parse_args()
    header("a report")
    with scratch() as folder:
        run = chosen.run or f"{folder}/run"
        if not chosen.run:
            write(run, chosen.steps, chosen.tensors, ends=True)
        before, at = time.process_time(), time.perf_counter()
        path = Path(folder) / "report.html"
        report(run, path)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        print(
            f"{time.perf_counter() - at:.1f} s, of CPU time {time.process_time() - before:.1f} s, "
            f"{memory:.0f} MB of memory, a file of {path.stat().st_size / 1e6:.2f} MB"
        )


if __name__ == "__main__":
    main()
