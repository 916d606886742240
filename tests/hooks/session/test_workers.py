"""SessionHook in jobs of several processes, as launchers start them."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from support import warm
from tensortrial import create_trial

PROGRAM = """
import sys
import time
from pathlib import Path
from support.graph_training import Net, batches
import tensortrial.hooks.tensorflow as tt

hook = tt.SessionHook("run", include_workers=sys.argv[1], save_config=tt.SaveConfig(save_interval=1))
net = Net(hook.wrap_optimizer)
mine = int(hook.worker.removeprefix("worker_"))
with net.session([hook]) as session:
    for x, y in batches(6)[mine::2]:
        session.run(net.train, net.feed(x, y))
        # A worker that begins when the others have ended would find a run that is over.
        Path(f"began_{mine}").touch()
        while not Path(f"began_{1 - mine}").exists():
            time.sleep(0.01)
hook.close()
"""
MODULES = ("tensorflow", "tensortrial.hooks.tensorflow", "support.graph_training")
CLUSTER = {"chief": ["localhost:1"], "worker": ["localhost:2"]}
LAUNCHERS = {
    "horovod": [{"HOROVOD_RANK": str(rank), "HOROVOD_SIZE": "2"} for rank in range(2)],
    "tensorflow": [
        {"TF_CONFIG": json.dumps({"cluster": CLUSTER, "task": {"type": task, "index": 0}})} for task in CLUSTER
    ],
}


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize(("launcher", "workers"), [("horovod", "one"), ("horovod", "all"), ("tensorflow", "all")])
def test_are_named_and_counted_as_their_launcher_says(tmp_path: Path, launcher: str, workers: str) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "OMPI_", "HOROVOD_"))}
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                warm.start(["-c", PROGRAM, workers], cwd=tmp_path, env={**kept, **variables}, preload=MODULES)
            )
            for variables in LAUNCHERS[launcher]
        ]
        for process in processes:
            _, err = process.communicate(timeout=120)
            assert process.returncode == 0, err
    trial = create_trial(tmp_path / "run")
    names = ["worker_0", "worker_1"] if workers == "all" else ["worker_0"]
    assert trial.workers() == names
    assert trial.num_workers == len(names)
    assert trial.steps() == [0, 1, 2]
    assert trial.loaded_all_steps
    (loss,) = trial.tensor_names(collection="losses")
    assert len({float(trial.tensor(loss).value(1, worker=name)) for name in names}) == len(names)
