"""What a run was made with and where."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

import tensortrial

SWITCHES = {
    "git": {"git_commit", "git_dirty"},
    "command": {"command", "working_directory"},
    "host": {"host", "platform", "cpus", "process_id"},
    "packages": {"packages"},
    "seeds": {"seeds"},
}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "train.py").write_text("pass\n")
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for arguments in (["init", "-q"], ["add", "train.py"], [*who, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("switch", SWITCHES)
def test_each_switch_leaves_out_its_own_values(repository: Path, switch: str) -> None:
    every = set().union(*SWITCHES.values())
    assert set(tensortrial.environment()) == every
    assert set(tensortrial.environment(**{switch: False})) == every - SWITCHES[switch]


def test_a_changed_file_makes_the_commit_dirty(repository: Path) -> None:
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    assert tensortrial.environment()["git_commit"] == head
    assert tensortrial.environment()["git_dirty"] is False
    (repository / "train.py").write_text("changed\n")
    assert tensortrial.environment()["git_dirty"] is True


@pytest.mark.parametrize("without", ["repository", "git"])
def test_without_git_nothing_is_said_of_it(
    tmp_path: Path, without: str, monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    if without == "git":
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
        monkeypatch.chdir(tmp_path)
    assert not SWITCHES["git"] & set(tensortrial.environment())


def test_the_seeds_tell_equal_states_from_others() -> None:
    random.seed(1)
    first = tensortrial.environment()["seeds"]
    assert tensortrial.environment()["seeds"] == first
    random.seed(2)
    assert tensortrial.environment()["seeds"]["python_state"] != first["python_state"]
