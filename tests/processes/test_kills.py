"""Fifty kills of training processes at random points; `make kill` does as many as one wants."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")


@pytest.mark.slow
def test_fifty_killed_writers_lose_nothing_that_was_available() -> None:
    program = Path(__file__).with_name("kill.py")
    done = subprocess.run([sys.executable, program, "--kills", "50", "--seed", "50"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 runs with problems" in done.stdout
