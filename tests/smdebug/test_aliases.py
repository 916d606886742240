"""smdebug's names: a script written for it runs here, and an installed smdebug is left alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support import warm

pytest.importorskip("torch")

SCRIPT = """
import sys
import smdebug.pytorch as smd
from smdebug.trials import create_trial

hook = smd.Hook(sys.argv[1])
hook.save_scalar("accuracy", 0.5)
hook.close()
print(create_trial(path=sys.argv[1], name="job").tensor_names())
"""
PRINTED = "['scalar/accuracy']\n"


def python(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return warm.run(arguments, timeout=120, env={**os.environ, **environment}, preload=warm.TORCH)


def test_a_script_runs_unchanged(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = python("-m", "tensortrial.smdebug", tmp_path / "train.py", tmp_path / "run")
    assert done.stdout == PRINTED, done.stderr


def test_one_import_is_enough(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import tensortrial.smdebug\n" + SCRIPT)
    assert python(tmp_path / "train.py", tmp_path / "run").stdout == PRINTED


@pytest.mark.slow
def test_every_alias_imports_and_has_what_it_names() -> None:
    program = """
import importlib, tensortrial.smdebug
from tensortrial.errors import MissingExtra
for name in tensortrial.smdebug.modules():
    try:
        module = importlib.import_module(name)
    except MissingExtra as exc:
        # Its framework has an environment of its own, and tests there.
        assert name.split(".")[1] in str(exc), exc
        continue
    for offered in module.__all__:
        assert getattr(module, offered) is not None, (name, offered)
import smdebug
assert smdebug.modes.TRAIN.value == 1
print(len(tensortrial.smdebug.modules()))
"""
    done = python("-c", program)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 40


def test_an_installed_smdebug_is_not_shadowed_by_default(tmp_path: Path) -> None:
    (tmp_path / "smdebug").mkdir()
    (tmp_path / "smdebug" / "__init__.py").write_text("installed = True")
    program = "import tensortrial.smdebug, smdebug; print(hasattr(smdebug, 'installed'))"
    left = python("-c", program, PYTHONPATH=_path(tmp_path))
    assert left.stdout == "True\n"
    assert "`import smdebug` imports the installed smdebug" in left.stderr
    left = python("-c", program, PYTHONPATH=_path(tmp_path), TENSORTRIAL_SHADOW_SMDEBUG="false")
    assert left.stdout == "True\n"
    done = python("-c", program, PYTHONPATH=_path(tmp_path), TENSORTRIAL_SHADOW_SMDEBUG="1")
    assert done.stdout == "False\n"
    assert "the installed smdebug is shadowed" in done.stderr


def test_running_a_script_installs_the_alias(tmp_path: Path) -> None:
    (tmp_path / "smdebug").mkdir()
    (tmp_path / "smdebug" / "__init__.py").write_text("installed = True")
    (tmp_path / "show.py").write_text("import smdebug; print(hasattr(smdebug, 'installed'), __name__)")
    done = python("-m", "tensortrial.smdebug", tmp_path / "show.py", PYTHONPATH=_path(tmp_path))
    assert done.stdout == "False __main__\n"
    assert "is shadowed" in done.stderr


def test_a_missing_script_is_said(tmp_path: Path) -> None:
    done = python("-m", "tensortrial.smdebug", tmp_path / "nothing.py")
    assert done.returncode == 2
    assert "does not exist" in done.stderr
    assert python("-m", "tensortrial.smdebug").returncode == 2


def _path(folder: Path) -> str:
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
