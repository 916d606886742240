"""The engine is a guest in its process: how much memory it takes, and what is said when it gets too little."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

import tensortrial
from tensortrial.engines.duckdb import DuckDBDatabase
from tensortrial.engines.memory_limit import ENVIRONMENT_VARIABLE, memory_of_process
from tensortrial.errors import ConfigurationError
from tensortrial.storage.open import open_storage

LIMITED = """
import resource, sys
from pathlib import Path
import pyarrow.compute, tensortrial.engines.duckdb
from tensortrial.errors import TensorTrialError
from tensortrial.read.opening import create_trial
trial = create_trial(sys.argv[1])
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    trial.sql("from steps")
    said = "answered"
except MemoryError as error:
    said = f"{type(error).__name__}: {error}"
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(said)
"""


def limit(folder: Path) -> str:
    database = DuckDBDatabase([open_storage(folder)])
    ((found,),) = database.execute("select current_setting('memory_limit')").fetchall()
    database.close()
    return str(found)


def test_the_engine_takes_a_quarter_of_the_memory_at_most(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    number, unit = limit(folder).split()
    assert float(number) * {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit] <= min(4 << 30, memory_of_process() / 4)
    assert memory_of_process() <= resource.getpagesize() * 2**40


def test_the_environment_sets_the_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "512MiB")
    assert limit(folder) == "512.0 MiB"
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "much")
    with pytest.raises(ConfigurationError, match="TENSORTRIAL_MEMORY_LIMIT must be a size such as '8GB', got 'much'"):
        tensortrial.create_trial(folder).sql("from steps")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="how much is used is not said here")
def test_an_engine_that_starts_without_memory_is_an_error_of_this_project(folder: Path) -> None:
    line = [sys.executable, "-c", LIMITED, str(folder), str(1 << 20)]
    # With so little, about one in thirty dies in DuckDB's or glibc's own code, which nothing here can prevent.
    tries = (subprocess.run(line, capture_output=True, text=True, timeout=60) for _ in range(5))
    done = next(done for done in tries if done.returncode >= 0)
    assert done.stdout.startswith("EngineOutOfMemory: the engine cannot get the memory that it needs"), done.stderr
    assert "TENSORTRIAL_MEMORY_LIMIT" in done.stdout
