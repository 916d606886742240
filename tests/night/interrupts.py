"""Ctrl-C at a random moment of a command, from its first imports to the middle of its work: it ends in one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import numpy as np
from night.finder import Case

from support.runs import Job

COMMANDS = ("compare", "diagnose", "export")
LONGEST_SECONDS = 1.0
"""Of processor time, until Ctrl-C."""
# Before this no program that Python runs can answer Ctrl-C in a way of its own.
PROGRAM = """
import sys
from tensortrial.cli.interrupts import hold_while_importing
hold_while_importing()
print("begins", flush=True)
from tensortrial.__main__ import main
main()
"""


def processor_seconds(process: int, thread: str = "") -> float:
    """Return the processor time that a process, or one of its threads, has used."""
    file = Path(f"/proc/{process}/task/{thread}/stat" if thread else f"/proc/{process}/stat")
    fields = file.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def write_many(folder: Path) -> list[str]:
    """Write two runs whose comparison within a tolerance takes some seconds: it reads each value."""
    for name, added in (("a", 0.0), ("b", 1e-6)):
        with Job(folder / name) as job:
            for step in range(60):
                job.step({f"x{number}": np.full(20, number + added * (step + 1)) for number in range(300)})
    return [str(folder / "a"), str(folder / "b")]


def interrupt(many: list[str], folder: Path, command: str, seconds: float) -> None:
    """Send Ctrl-C to a command when it has used some seconds of processor time, and check how it ends."""
    temporary = folder / "temporary"
    temporary.mkdir()
    arguments = {"compare": [*many, "--atol", "1"], "export": [*many, str(folder / "runs.duckdb")]}
    line = [sys.executable, "-c", PROGRAM, command, *arguments.get(command, many[:1])]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        end = processor_seconds(process.pid) + seconds
        while process.poll() is None and processor_seconds(process.pid) < end:
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        printed, err = process.communicate(timeout=60)
    if printed and not err and process.returncode in (0, -signal.SIGINT):
        return  # it had printed its answer, and the interpreter was ending
    ended = printed, err, process.returncode
    assert ended == ("", "Interrupted\n", 130), f"{command} after {seconds:.3f} s: {ended}"
    assert list(temporary.iterdir()) == []


@contextmanager
def prepared(folder: Path) -> Iterator[Case]:
    many = write_many(folder)

    def case(random: Random, own: Path) -> Counter[str]:
        interrupt(many, own, random.choice(COMMANDS), random.uniform(0, LONGEST_SECONDS))
        return Counter(interrupts=1)

    yield case
