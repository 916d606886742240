"""A trial is closed, and a program ends, while another thread waits for a long query."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

import tensortrial
from support import warm
from tensortrial.errors import QueryError, RunClosed
from tensortrial.read.trial import run_reader_of

LONG = "select count(*) from tensors a, range(1000000000) b, range(1000000) c where b.range + c.range = -1"

PROGRAM = """
import sys, threading, time
import tensortrial
trial = tensortrial.create_trial(sys.argv[1])
thread = threading.Thread(target=lambda: trial.sql(sys.argv[2], timeout={timeout}).fetchall(), daemon=True)
thread.start()
time.sleep(0.5)
print("ends")
"""


@pytest.mark.parametrize("pause", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("open_it", [tensortrial.create_trial, tensortrial.open_runs])
def test_closing_stops_the_query_of_another_thread(folder: Path, open_it: Any, pause: float) -> None:
    opened = open_it(folder)
    raised: list[BaseException] = []

    def ask() -> None:
        try:
            opened.sql(LONG).fetchall()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            raised.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    time.sleep(pause)
    opened.close()
    thread.join(60)
    assert not thread.is_alive()
    assert [type(error) for error in raised] == [RunClosed]
    with pytest.raises(RunClosed):
        opened.sql("select 1")


@pytest.mark.parametrize("timeout", [None, 3600])
def test_a_program_ends_while_a_daemon_thread_waits_for_a_query(folder: Path, timeout: float | None) -> None:
    done = warm.run(["-c", PROGRAM.format(timeout=timeout), folder, LONG], timeout=120)
    assert (done.stdout, done.returncode) == ("ends\n", 0)
    for foreign in ("nanobind", "Fatal", "atexit"):
        assert foreign not in done.stderr


@pytest.mark.parametrize("use", ["", "reader.read_next_batch()", "reader.close()"])
def test_a_program_ends_with_an_unread_reader_of_batches(folder: Path, use: str) -> None:
    program = (
        f"import sys, tensortrial; reader = tensortrial.create_trial(sys.argv[1]).sql(sys.argv[2]).arrow(1); {use}"
    )
    # In a real process, because this happens when Python destroys its modules.
    command = [sys.executable, "-c", program, str(folder), "select * from tensors, range(10)"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_nothing_of_a_closed_trial_is_kept(folder: Path) -> None:
    trial = tensortrial.create_trial(folder)
    assert trial.tensor("x").value(0) == 1.0
    assert trial.sql("select count(*) from tensors").fetchall() == [(1,)]
    storage = weakref.ref(run_reader_of(trial).storage)
    trial.close()
    del trial
    gc.collect()
    assert storage() is None


def test_the_error_of_a_query_is_freed_with_its_last_user(folder: Path) -> None:
    trial = tensortrial.create_trial(folder)
    gc.disable()
    try:
        trial.sql("select error(name) from tensors").fetchall()
    except QueryError as error:
        of_duckdb = weakref.ref(error.__context__)
    finally:
        gc.enable()
    assert of_duckdb() is None
