"""Ctrl-C stops what runs, at a terminal and in Python."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from support.runs import Job

LONG = "select count(*) from tensors a, range(1000000000) b, range(1000000000) c where b.range + c.range = -1"

PROGRAM = """
import sys
import tensortrial
trial = tensortrial.create_trial(sys.argv[1])
answer = trial.sql(sys.argv[2])
try:
    print("begins", flush=True)
    getattr(answer, sys.argv[3])()
except KeyboardInterrupt:
    print("stopped", trial.sql("select count(*) from tensors").fetchall())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Job(tmp_path / "run") as job:
        job.step({"x": 1.0})
    return tmp_path / "run"


def processor_seconds(process: int, thread: str = "") -> float:
    file = Path(f"/proc/{process}/task/{thread}/stat" if thread else f"/proc/{process}/stat")
    fields = file.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_computing(process: int) -> bool:
    """Return whether a process is inside the query: only that keeps a thread of DuckDB busy, where it has any."""
    threads = os.listdir(f"/proc/{process}/task")
    others = [processor_seconds(process, each) for each in threads if each != str(process)]
    return any(seconds > 0.2 for seconds in others) or processor_seconds(process) > 3


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processor time is not said here")
def test_ctrl_c_at_a_terminal_ends_sql_with_status_130(folder: Path) -> None:
    pytest.importorskip("click")
    child, terminal = pty.fork()
    if not child:
        os.execv(sys.executable, [sys.executable, "-m", "tensortrial", "sql", str(folder), LONG])
    deadline = time.monotonic() + 60
    while not is_computing(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.write(terminal, b"\x03")
    printed = b""
    # The terminal of a process that has ended raises an error instead of returning no data.
    while True:
        try:
            printed += os.read(terminal, 1000)
        except OSError:
            break
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 130
    assert printed.decode().replace("^C", "").split() == ["Interrupted"]


@pytest.mark.parametrize("method", ["fetchall", "to_arrow_table"])
def test_ctrl_c_in_python_is_a_keyboard_interrupt(folder: Path, method: str) -> None:
    line = [sys.executable, "-c", PROGRAM, str(folder), LONG, method]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        printed, err = process.communicate(timeout=60)
    assert (printed, err, process.returncode) == ("stopped [(1,)]\n", "", 0)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two runs whose comparison within a tolerance takes some seconds: it reads each value."""
    folder = tmp_path_factory.mktemp("runs")
    for name, added in (("a", 0.0), ("b", 1e-6)):
        with Job(folder / name) as job:
            for step in range(60):
                job.step({f"x{number}": np.full(20, number + added * (step + 1)) for number in range(300)})
    return [str(folder / "a"), str(folder / "b")]


# Before this no program that Python runs can answer Ctrl-C in a way of its own.
COMMAND = """
import sys
from tensortrial.cli.interrupts import hold_while_importing
hold_while_importing()
print("begins", flush=True)
from tensortrial.__main__ import main
main()
"""


# From the first imports to the middle of the work, in seconds of processor time.
@pytest.mark.parametrize("seconds", [0.05, 0.2, 0.35, 0.5, 0.7, 1.0])
@pytest.mark.parametrize("command", ["compare", "diagnose", "export"])
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processor time is not said here")
@pytest.mark.slow
def test_ctrl_c_at_any_moment_ends_a_command_in_one_line(
    many: list[str], tmp_path: Path, command: str, seconds: float
) -> None:
    pytest.importorskip("click")
    folder = tmp_path / "temporary"
    folder.mkdir()
    arguments = {"compare": [*many, "--atol", "1"], "export": [*many, str(tmp_path / "runs.duckdb")]}
    line = [sys.executable, "-c", COMMAND, command, *arguments.get(command, many[:1])]
    environment = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        end = processor_seconds(process.pid) + seconds
        while process.poll() is None and processor_seconds(process.pid) < end:
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        printed, err = process.communicate(timeout=60)
    assert (printed, err, process.returncode) == ("", "Interrupted\n", 130)
    assert list(folder.iterdir()) == []
