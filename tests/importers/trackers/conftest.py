"""Runs that experiment trackers themselves wrote, each by a program of its own, once for all tests of a file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

_NEEDS = {"aim": "aim", "mlflow": "mlflow", "wandb": "wandb", "trackio": "trackio"}
collect_ignore_glob = [f"test_import_{word}*.py" for word, package in _NEEDS.items() if find_spec(package) is None]

Write = Callable[..., Path]


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Write:
    """Run a program in a new folder, with the network out of reach, and return the folder."""

    def run(program: str, **variables: str) -> Path:
        folder = tmp_path_factory.mktemp("tracker")
        home = {
            "HOME": str(folder),
            "WANDB_MODE": "offline",
            "WANDB_SILENT": "true",
            "TRACKIO_DIR": str(folder / "trackio"),
        }
        home |= {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_ALLOW_FILE_STORE": "true", "GIT_PYTHON_REFRESH": "quiet"}
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=folder,
            env=os.environ | home | variables,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return folder

    return run
