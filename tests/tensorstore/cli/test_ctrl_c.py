"""Ctrl-C stops what runs, at a terminal and in Python."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from night.interrupts import interrupt, processor_seconds, write_many

from support.waiting import wait_until

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


def is_computing(process: int) -> bool:
    """Return whether a process is inside the query: only that keeps a thread of DuckDB busy, where it has any."""
    for thread in os.listdir(f"/proc/{process}/task"):
        with suppress(OSError):  # the thread has ended meanwhile
            if thread != str(process) and processor_seconds(process, thread) > 0.2:
                return True
    return processor_seconds(process) > 3


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processor time is not said here")
def test_ctrl_c_at_a_terminal_ends_sql_with_status_130(folder: Path) -> None:
    pytest.importorskip("click")
    child, terminal = pty.fork()
    if not child:
        os.execv(sys.executable, [sys.executable, "-m", "tensortrial", "sql", str(folder), LONG])
    wait_until(lambda: is_computing(child))
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
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processor time is not said here")
def test_ctrl_c_in_python_is_a_keyboard_interrupt(folder: Path, method: str) -> None:
    line = [sys.executable, "-c", PROGRAM, str(folder), LONG, method]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        wait_until(lambda: is_computing(process.pid))
        process.send_signal(signal.SIGINT)
        printed, err = process.communicate(timeout=60)
    assert (printed, err, process.returncode) == ("stopped [(1,)]\n", "", 0)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two runs whose comparison within a tolerance takes some seconds."""
    return write_many(tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize(("command", "seconds"), [("compare", 1.0), ("diagnose", 0.35), ("export", 0.7)])
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processor time is not said here")
@pytest.mark.slow
def test_ctrl_c_ends_a_command_in_one_line(many: list[str], tmp_path: Path, command: str, seconds: float) -> None:
    """The finder `interrupts` presses it at many other moments, also while the command imports."""
    pytest.importorskip("click")
    interrupt(many, tmp_path, command, seconds)
