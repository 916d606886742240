"""A short soak of few processes; `make soak` runs as many, and for as long, as one wants."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")


@pytest.mark.slow
def test_processes_that_write_read_and_compact_one_run_lose_nothing() -> None:
    program = Path(__file__).with_name("soak.py")
    options = ["--seconds", "20", "--writers", "8", "--readers", "3"]
    done = subprocess.run([sys.executable, program, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 lost some, 0 wrong" in done.stdout
