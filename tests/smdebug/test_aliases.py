"""smdebug's names: a script written for it runs here, and an installed smdebug is left alone."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from support import warm

pytest.importorskip("torch")

# As its documentation shows it: nothing here knows of another package.
SCRIPT = """
import sys
import torch
import smdebug.pytorch as smd
from smdebug.analysis.utils import no_refresh
from smdebug.core.tensor import StepState
from smdebug.exceptions import *
from smdebug.trials import create_trial

out_dir = sys.argv[1]
hook = smd.Hook(
    out_dir=out_dir,
    save_config=smd.SaveConfig(save_interval=2),
    reduction_config=smd.ReductionConfig(reductions=["mean"], norms=["l2"]),
    include_collections=["weights", "gradients"],
)
model, loss = torch.nn.Linear(4, 1), torch.nn.MSELoss()
hook.register_module(model)
hook.register_loss(loss)
hook.set_mode(smd.modes.TRAIN)
for _ in range(5):
    loss(model(torch.randn(3, 4)), torch.randn(3, 1)).backward()
hook.close()

trial = create_trial(path=out_dir, name="job")
with no_refresh(trial):
    print(trial.name, trial.steps(mode=smd.modes.TRAIN), trial.has_passed_step(2) == StepState.AVAILABLE)
    print(trial.tensor_names(collection="gradients"))
    print(sorted(trial.tensor("Linear_weight").reduction_values(2)))
try:
    trial.tensor("absent")
except TensorUnavailable as e:
    print("unavailable", e.tname)
"""
PRINTED = """job [0, 2, 4] True
['gradient/Linear_bias', 'gradient/Linear_weight']
[('l2', False), ('mean', False)]
unavailable absent
"""


CONFIGURED = """
import torch
import smdebug.pytorch as smd

hook = smd.Hook.create_from_json_file()
model, loss = torch.nn.Linear(4, 1), torch.nn.MSELoss()
hook.register_module(model)
hook.register_loss(loss)
hook.set_mode(smd.modes.TRAIN)
for _ in range(6):
    loss(model(torch.randn(3, 4)), torch.randn(3, 1)).backward()
hook.save_scalar("accuracy", 0.5, sm_metric=True)
hook.close()

trial = smd.create_trial(hook.out_dir)
print(smd.get_hook() is hook, trial.tensor_names(collection="sm_metrics"))
print(trial.tensor("Linear_weight").steps(mode=smd.modes.TRAIN))
print(trial.tensor("gradient/Linear_weight").steps(mode=smd.modes.TRAIN))
print(sorted(trial.tensor("gradient/Linear_weight").reduction_values(0)))
"""
CONFIGURATION = {
    "S3OutputPath": "s3://bucket/job",
    "HookParameters": {"save_interval": "4", "train.save_interval": "2"},
    "CollectionConfigurations": [
        {"CollectionName": "weights"},
        {
            "CollectionName": "gradients",
            "CollectionParameters": {"train.save_interval": "3", "reductions": "l2,abs_max"},
        },
    ],
}
CONFIGURED_PRINTED = """True ['scalar/accuracy']
[0, 2, 4]
[0, 3]
[('l2', False), ('max', True)]
"""

RULE = """
import sys
from smdebug.exceptions import *
from smdebug.rules import Rule, invoke_rule
from smdebug.trials import create_trial

class VanishingGradientRule(Rule):
    def __init__(self, base_trial, threshold=0.0000001):
        super().__init__(base_trial, other_trials=None)
        self.threshold = float(threshold)

    def invoke_at_step(self, step):
        for tname in self.base_trial.tensor_names(collection='gradients'):
            tensor = self.base_trial.tensor(tname)
            abs_mean = tensor.reduction_value(step, 'mean', abs=True)
            if abs_mean < self.threshold:
                return True
        return False

trial = create_trial(sys.argv[1])
invoke_rule(VanishingGradientRule(trial, threshold='0.0000001'), start_step=0, end_step=None)
try:
    invoke_rule(VanishingGradientRule(trial, threshold='1e6'), raise_eval_cond=True)
except RuleEvaluationConditionMet as e:
    print("met", e.rule_name, e.step)
"""


def python(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return warm.run(arguments, timeout=120, env={**os.environ, **environment}, preload=warm.TORCH)


def test_a_script_runs_unchanged(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = python("-m", "tensortrial.smdebug", tmp_path / "train.py", tmp_path / "run")
    assert done.stdout == PRINTED, done.stderr


def test_a_job_with_a_json_configuration_runs_unchanged(tmp_path: Path) -> None:
    # LocalPath is where a job saves that is not to write to the bucket by itself.
    configuration = {**CONFIGURATION, "LocalPath": str(tmp_path / "run")}
    (tmp_path / "hook.json").write_text(json.dumps(configuration))
    (tmp_path / "train.py").write_text(CONFIGURED)
    done = python(
        "-m", "tensortrial.smdebug", tmp_path / "train.py", SMDEBUG_CONFIG_FILE_PATH=str(tmp_path / "hook.json")
    )
    assert done.stdout == CONFIGURED_PRINTED, done.stderr


def test_a_rule_runs_unchanged(tmp_path: Path) -> None:
    train = SCRIPT.replace('reductions=["mean"], norms=["l2"]', 'reductions=["mean"], save_raw_tensor=True')
    (tmp_path / "train.py").write_text(train)
    (tmp_path / "rule.py").write_text(RULE)
    trained = python("-m", "tensortrial.smdebug", tmp_path / "train.py", tmp_path / "run")
    assert "unavailable absent" in trained.stdout, trained.stderr
    done = python("-m", "tensortrial.smdebug", tmp_path / "rule.py", tmp_path / "run")
    assert done.stdout == "met VanishingGradientRule 0\n", done.stderr


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
