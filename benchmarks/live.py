"""How soon another process sees a step, for three settings of flush_seconds.

python benchmarks/live.py
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

import numpy as np
from common import header, line, scratch

import tensortrial

STEPS = 30


def write(out: str, flush_seconds: float, pause: float) -> None:
    with tensortrial.Run(out, flush_seconds=flush_seconds) as run:
        for _ in range(STEPS):
            with run.step():
                run.save_tensor("weights", np.ones(1000, np.float32))
                run.save_tensor("closes_at", np.array([time.time(), 0.0]))
            time.sleep(pause)


def watch(out: str) -> list[float]:
    """How long after it closed each step was read."""
    trial = tensortrial.create_trial(out, timeout=30)
    # The reader is up before it is timed: opening a run is what reading.py measures.
    trial.wait_for_steps([0], timeout=60)
    trial.tensor("weights").value(0)
    delays = []
    for step in range(trial.steps()[-1] + 1, STEPS):
        trial.wait_for_steps([step], timeout=60)
        trial.tensor("weights").value(step)
        delays.append(time.time() - float(trial.tensor("closes_at").value(step)[0]))
    return delays


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", nargs=3, metavar=("OUT", "FLUSH_SECONDS", "PAUSE"))
    arguments = parser.parse_args()
    if arguments.write:
        out, flush_seconds, pause = arguments.write
        write(out, float(flush_seconds), float(pause))
        return
    header("From the end of a step to its value in another process (which looks 20 times a second)")
    for flush_seconds in (0.0, 0.2, 1.0):
        with scratch() as folder:
            command = [sys.executable, __file__, "--write", str(folder / "run"), str(flush_seconds), "0.1"]
            with subprocess.Popen(command):
                delays = watch(str(folder / "run"))
        measured = f"{statistics.median(delays):.3f} s, at most {max(delays):.3f} s"
        line(f"flush_seconds={flush_seconds:g}", measured, f"{flush_seconds + 0.2:g} s")


if __name__ == "__main__":
    main()
