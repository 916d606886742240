"""What a number costs that a program without a framework saves: `Run.log`.

python benchmarks/plain.py

Prints microseconds of the calling thread, and the ratio to a line of JSON that is written to a file at each step.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tensortrial

STEPS = 2000
REPEATS = 5


def of_json(folder: Path, numbers: dict[str, float]) -> None:
    with (folder / "log.jsonl").open("w") as file:
        for step in range(STEPS):
            file.write(json.dumps({"step": step, **numbers}) + "\n")
            file.flush()


def of_run(folder: Path, numbers: dict[str, float]) -> float:
    run = tensortrial.Run(folder / "run")
    run.log(numbers, step=0)
    begin = time.thread_time()
    for step in range(1, STEPS):
        run.log(numbers, step=step)
    seconds = time.thread_time() - begin
    run.close()
    return seconds


def seconds_of(write: Callable[[Path, dict[str, float]], float | None], numbers: dict[str, float]) -> float:
    """Return the least seconds of the calling thread for all steps."""
    found = []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            begin = time.thread_time()
            seconds = write(Path(folder), numbers)
            found.append(time.thread_time() - begin if seconds is None else seconds)
    return min(found)


def main() -> None:
    for count in (1, 10, 100):
        numbers = {f"metric_{index}": index / 3 for index in range(count)}
        run, line = seconds_of(of_run, numbers), seconds_of(of_json, numbers)
        each = 1e6 / (STEPS * count)
        print(f"{count:4} numbers a step: {run * each:5.2f} us a number, {run / line:5.2f} x a line of JSON")


if __name__ == "__main__":
    main()
