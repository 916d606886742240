"""The cost of opening a small run, and of many steps: the aims of docs/design/001-snapshot.md, in CPU time.

python benchmarks/opening.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from calls import write
from common import cpu_seconds, header, line, scratch

PAIRS = 9
_IMPORTS = "import numpy, pyarrow.parquet\n"
_READ = """
import tensortrial
trial = tensortrial.create_trial({folder!r})
trial.steps(), trial.tensor_names(), trial.tensor("layer0").value(3)
"""


def process_cpu_seconds(code: str) -> float:
    """Return the CPU time of a new process that runs some code."""
    timed = f"{code}import time; print(time.process_time())"
    return float(subprocess.run([sys.executable, "-c", timed], check=True, capture_output=True, text=True).stdout)


def median_cpu(call: Callable[[], object], repeat: int, pause_seconds: float = 0.0) -> float:
    """Return the median of the CPU time of a call, after pauses."""
    found = []
    for _ in range(repeat):
        time.sleep(pause_seconds)
        found.append(cpu_seconds(call))
    return statistics.median(found)


def print_small(folder: Path) -> None:
    """Print what a small run costs in a new process, in the same process, and a second later."""
    import tensortrial

    read = _READ.format(folder=str(folder))
    ratios = [process_cpu_seconds(_IMPORTS + read) / process_cpu_seconds(_IMPORTS) for _ in range(PAIRS)]
    line("a new process: imports, steps, names, a value", f"{statistics.median(ratios):.2f}x of two imports", "1.3x")

    def read_again() -> None:
        with tensortrial.create_trial(folder) as trial:
            trial.steps(), trial.tensor_names(), trial.tensor("layer0").value(3)

    read_again()
    line("the same again in this process", f"{median_cpu(read_again, 50) * 1e3:.1f} ms", "5 ms")
    with tensortrial.create_trial(folder) as trial:
        tensor = trial.tensor("layer0")
        line("a value a second later", f"{median_cpu(lambda: tensor.value(3), 10, 1.1) * 1e6:.0f} us", "60 us")
        line("a value again", f"{median_cpu(lambda: tensor.value(3), 300) * 1e6:.0f} us")


def print_many_workers() -> None:
    """Print the memory of the steps of 1,000 workers with 1,000 steps each, in files that are read 50 at a time."""
    from tensortrial.format.index_types import IndexSummary, NamedTensor, StepSummary
    from tensortrial.snapshot.index_files import IndexFile
    from tensortrial.snapshot.saved_steps import SavedSteps

    saved, names = SavedSteps(), [(NamedTensor("loss", ("losses",)),)]
    for first in range(0, 1000, 50):
        steps = [StepSummary("TRAIN", step, step, step, 0) for step in range(1000)]
        summary = IndexSummary(1000, steps, names, [], "")
        ranks = range(first, first + 50)
        saved = saved.added([IndexFile(f"worker_{rank}", f"index/worker=worker_{rank}", summary) for rank in ranks])
    nbytes = sum(column.nbytes for column in saved.columns)
    line("the steps of 1,000 workers x 1,000 steps", f"{nbytes / 1e6:.0f} MB in {len(saved.columns)} arrays")


def main() -> None:
    header("Opening a run, in CPU time")
    with scratch() as scratched:
        folder = scratched / "run"
        write(folder)
        print_small(folder)
    print_many_workers()


if __name__ == "__main__":
    main()
