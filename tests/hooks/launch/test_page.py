"""What the page on `tensortrial run` shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from support import warm
from tensortrial import create_trial
from tensortrial.hooks.launch.launch import Launch
from tensortrial.mode import modes

PAGE = (Path(__file__).parents[3] / "docs" / "run.md").read_text()


def test_the_script_of_the_page_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    (script,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "train.py").write_text(script)
    # As if a sitecustomize had imported torch. tests/hooks/launch/test_run.py imports it after the command has begun.
    done = warm.run(["-m", "tensortrial", "run", "train.py"], cwd=tmp_path, timeout=180, preload=warm.TORCH)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[0] in PAGE
    trial = create_trial(str(tmp_path / "runs" / "train"))
    assert trial.steps(modes.TRAIN) == list(range(20))
    assert trial.tensor("MSELoss_output_0").steps(modes.TRAIN) == list(range(20))
    statistics = trial.tensor("0_output_0")
    assert statistics.steps(modes.TRAIN) == statistics.steps(modes.EVAL) == list(range(11))


def test_the_configuration_of_the_page_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (document,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "hook.json").write_text(document)
    launch = Launch.of("train", "hook.json", None, False)
    launch.check()
    assert launch.configuration().arguments["out_dir"] == json.loads(document)["out_dir"]
