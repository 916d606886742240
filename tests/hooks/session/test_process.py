"""A process with a SessionHook that a rule stops."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tensortrial import create_trial, modes
from tensortrial.rules import Rule, invoke_rule

STOPPED = """
import time
from support.graph_training import Net, batches
import tensortrial.hooks.tensorflow as tt

hook = tt.SessionHook("run", save_config=tt.SaveConfig(save_interval=1), flush_seconds=0)
hook.set_mode(tt.modes.TRAIN)
net = Net(hook.wrap_optimizer)
(x, y), *_ = batches(1)
with net.session([hook]) as session:
    for _ in range(3000):
        session.run(net.train, net.feed(x, y))
        time.sleep(0.02)
print("not stopped")
"""


# As smdebug's documentation shows it.
class AtStepFive(Rule):
    """Fires once."""

    def invoke_at_step(self, step: int) -> bool:
        return step == 5


def start(program: str, folder: Path) -> subprocess.Popen[str]:
    (folder / "train.py").write_text(program)
    path = os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))
    return subprocess.Popen(
        [sys.executable, "train.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_a_rule_stops_it_and_the_run_is_closed(tmp_path: Path) -> None:
    with start(STOPPED, tmp_path) as job:
        trial = create_trial(tmp_path / "run", timeout=60)
        invoke_rule(AtStepFive(trial, action_str="StopTraining"))
        printed, said = job.communicate(timeout=60)
    assert (job.returncode, printed) == (3, ""), said
    assert "was stopped: rule AtStepFive fired at step 5" in said
    steps = trial.steps(modes.TRAIN)
    assert trial.loaded_all_steps
    assert steps == list(range(len(steps)))
    assert 5 < len(steps) < 1000
