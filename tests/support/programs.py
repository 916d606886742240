"""Programs that tests start as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from support import warm


def start(script: str, folder: Path, *, stdin: int | None = None, **variables: str) -> warm.Process:
    """Start a program in `folder` whose imports are done: those of torch, too, if the program names it."""
    _write(script, folder)
    preload = warm.TORCH if "torch" in script else ()
    return warm.start(["script.py"], cwd=folder, env={**os.environ, **variables}, stdin=stdin, preload=preload)


def start_cold(script: str, folder: Path, *, stdin: int | None = None, **variables: str) -> subprocess.Popen[str]:
    """Start a program in `folder` in a real process, with this interpreter and what it can import."""
    _write(script, folder)
    paths = os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))
    return subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **variables},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, started as by `start`."""
    return _finished(start(script, folder, **variables))


def run_cold(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, started as by `start_cold`."""
    return _finished(start_cold(script, folder, **variables))


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def run_training(script: str, folder: Path, *arguments: str, by: Sequence[str] = (), **variables: str) -> str:
    """Run a training in a real process, in which hooks raise their errors. Return its standard error.

    Args:
        script: The program, which becomes `train.py` in the folder.
        folder: The working directory.
        *arguments: The arguments of the program.
        by: The arguments of Python before the program, such as TORCHRUN.
        **variables: Variables of the environment, which otherwise has none of this project.
    """
    (folder / "train.py").write_text(script)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TENSORTRIAL_")}
    inherited.pop("PYTHONSAFEPATH", None)
    done = subprocess.run(
        [sys.executable, *by, "train.py", *arguments],
        cwd=folder,
        env={**inherited, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TENSORTRIAL_STRICT": "1", **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def run_workers(script: str, folder: Path, *modules: str) -> str:
    """Run a training in two processes with the variables of torchrun, as `run_training` does. Return their errors.

    The processes are forked from one with the modules' imports. `run_training` by TORCHRUN starts torchrun itself.
    """
    from torch.distributed import TCPStore

    (folder / "train.py").write_text(script)
    # torchrun, too, holds the store of its workers: no other test can take its port.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    common = {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0", "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_RUN_ID": "tests", "TENSORTRIAL_STRICT": "1",
    }  # fmt: skip
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TENSORTRIAL_")}
    errors = []
    with ExitStack() as stack:
        processes = []
        for rank in ("0", "1"):
            environment = {**inherited, **common, "RANK": rank, "LOCAL_RANK": rank}
            process = warm.start(["train.py"], cwd=folder, env=environment, preload=(*warm.TORCH, *modules))
            processes.append(stack.enter_context(process))
        for process in processes:
            errors.append(process.communicate(timeout=300)[1])
            assert process.returncode == 0, errors[-1]
    return "".join(errors)


def _finished(process: warm.Process | subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    with process:
        try:
            out, err = process.communicate(timeout=90)
        finally:
            process.kill()
    assert process.returncode is not None
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _write(script: str, folder: Path) -> None:
    (folder / "script.py").write_text(textwrap.dedent(script))
