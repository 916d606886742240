"""Programs that tests start as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path


def start(script: str, folder: Path, *, stdin: int | None = None, **variables: str) -> subprocess.Popen[str]:
    """Start a program in `folder` with this interpreter and what it can import."""
    (folder / "script.py").write_text(textwrap.dedent(script))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))}
    return subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=folder,
        env={**environment, "OMP_NUM_THREADS": "1", **variables},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    with start(script, folder, **variables) as process:
        try:
            out, err = process.communicate(timeout=90)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
