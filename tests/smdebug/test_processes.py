"""Scripts for smdebug that start processes: these import smdebug's names, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MULTIPROCESSING = """
import multiprocessing
import smdebug
from smdebug.core.modes import ModeKeys

def work(number):
    return smdebug.__file__ is None if hasattr(smdebug, "__file__") else True, ModeKeys(number).name, __name__

if __name__ == "__main__":
    with multiprocessing.get_context(METHOD).Pool(2) as pool:
        print(pool.map(work, [1, 2]))
"""
TORCH_SPAWN = """
import sys
import torch.multiprocessing
import smdebug.pytorch as smd

def train(rank, folder):
    hook = smd.Hook(f"{folder}/{rank}", save_config=smd.SaveConfig(save_interval=1))
    model = torch.nn.Linear(2, 1)
    hook.register_module(model)
    model(torch.ones(1, 2)).sum().backward()
    hook.save_scalar("rank", rank)
    hook.close()

if __name__ == "__main__":
    torch.multiprocessing.spawn(train, args=(sys.argv[1],), nprocs=2)
    print([smd.create_trial(f"{sys.argv[1]}/{rank}").tensor("scalar/rank").value(0)[0] for rank in range(2)])
"""
TRAIN = """
import os, sys
import torch
import smdebug.pytorch as smd

torch.distributed.init_process_group("gloo")
hook = smd.Hook(sys.argv[1], save_config=smd.SaveConfig(save_interval=1), include_workers="all")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
hook.register_module(model)
model(torch.ones(1, 2)).sum().backward()
hook.save_scalar("rank", int(os.environ["RANK"]))
hook.close()
torch.distributed.destroy_process_group()
"""
ALIAS = ("-m", "tensortrial.smdebug")
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone")


def run(folder: Path, *arguments: object, **environment: str) -> str:
    """Return what Python prints."""
    command = [sys.executable, *map(str, arguments)]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    variables.pop("PYTHONSAFEPATH", None)  # a script's folder is on the path, as for a user
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_processes_of_multiprocessing_import_the_names(tmp_path: Path, method: str) -> None:
    (tmp_path / "work.py").write_text(MULTIPROCESSING.replace("METHOD", repr(method)))
    expected = "[(True, 'TRAIN', '__mp_main__'), (True, 'EVAL', '__mp_main__')]\n"
    assert run(tmp_path, *ALIAS, "work.py") == expected


def test_processes_of_a_module_import_the_names(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(MULTIPROCESSING.replace("METHOD", "'spawn'"))
    assert "(True, 'EVAL', '__mp_main__')" in run(tmp_path, *ALIAS, "-m", "work")


def test_one_import_serves_processes_that_import_the_names_first(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(
        "from smdebug.core.modes import ModeKeys\ndef name(n): return ModeKeys(n).name\n"
    )
    (tmp_path / "work.py").write_text(
        "if __name__ == '__main__':\n"
        "    import tensortrial.smdebug, multiprocessing, tasks\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(tasks.name, [3]))\n"
    )
    assert run(tmp_path, "work.py") == "['PREDICT']\n"


def test_a_script_that_a_script_starts_imports_the_names(tmp_path: Path) -> None:
    (tmp_path / "inner.py").write_text("import smdebug, smdebug.trials; print(smdebug.modes.EVAL.value)")
    (tmp_path / "outer.py").write_text(
        "import subprocess, sys; subprocess.run([sys.executable, 'inner.py'], check=True)"
    )
    assert run(tmp_path, *ALIAS, "outer.py") == "2\n"


def test_an_installed_smdebug_is_shadowed_in_started_processes_too(tmp_path: Path) -> None:
    (tmp_path / "site" / "smdebug").mkdir(parents=True)
    (tmp_path / "site" / "smdebug" / "__init__.py").write_text("installed = True")
    path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    (tmp_path / "inner.py").write_text("import smdebug; print(hasattr(smdebug, 'installed'))")
    (tmp_path / "outer.py").write_text(
        "import subprocess, sys; subprocess.run([sys.executable, 'inner.py'], check=True)"
    )
    assert run(tmp_path, *ALIAS, "outer.py", PYTHONPATH=path) == "False\n"
    # Where it is not shadowed, a started process has the installed one as well.
    (tmp_path / "outer.py").write_text(
        "import warnings; warnings.simplefilter('ignore'); import tensortrial.smdebug\n" + "import subprocess, sys\n"
        "subprocess.run([sys.executable, 'inner.py'], check=True)"
    )
    assert run(tmp_path, "outer.py", PYTHONPATH=path) == "True\n"


def test_another_python_without_tensortrial_has_its_own_smdebug(tmp_path: Path) -> None:
    import tensortrial.smdebug

    (tmp_path / "smdebug").mkdir()
    (tmp_path / "smdebug" / "__init__.py").write_text("installed = True")
    (tmp_path / "tensortrial.py").write_text("raise ModuleNotFoundError(name='tensortrial')")
    path = os.pathsep.join([tensortrial.smdebug._PATH, str(tmp_path)])
    assert run(tmp_path, "-c", "import smdebug; print(smdebug.installed)", PYTHONPATH=path) == "True\n"


def test_a_notebook_loads_an_extension_that_serves_its_scripts(tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    (tmp_path / "inner.py").write_text("import smdebug.trials; print('inner', smdebug.modes.TRAIN.value)")
    (tmp_path / "cells.ipy").write_text(
        "%load_ext tensortrial.smdebug\n"
        "%load_ext tensortrial.smdebug\n"  # a cell that is run again
        "import smdebug\n"
        "print(smdebug.modes.TRAIN.value, flush=True)\n"
        "!{sys.executable} inner.py\n"
    )
    shown = run(tmp_path, "-m", "IPython", "--no-banner", "--colors=NoColor", "-c", "import sys\n%run cells.ipy")
    assert [line for line in shown.splitlines() if "load_ext" not in line and "already loaded" not in line] == [
        "1",
        "inner 1",
    ]


@pytest.mark.slow
def test_processes_of_torch_save_runs_of_their_own(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TORCH_SPAWN)
    assert run(tmp_path, *ALIAS, "train.py", tmp_path / "runs") == "[np.float64(0.0), np.float64(1.0)]\n"


@pytest.mark.slow
@pytest.mark.distributed
def test_processes_of_torchrun_save_one_run(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tensortrial import create_trial

    (tmp_path / "train.py").write_text(TRAIN)
    run(tmp_path, *ALIAS, *TORCHRUN, "train.py", tmp_path / "run")
    trial = create_trial(tmp_path / "run")
    assert trial.workers() == ["worker_0", "worker_1"]
    assert [trial.tensor("scalar/rank").value(0, worker=worker) for worker in trial.workers()] == [0, 1]


@pytest.mark.slow
def test_processes_that_torchrun_starts_with_the_module_import_the_names(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "inner.py").write_text("import smdebug.trials; print(smdebug.modes.EVAL.value, flush=True)")
    assert run(tmp_path, *TORCHRUN, *ALIAS, "inner.py").splitlines() == ["2", "2"]
