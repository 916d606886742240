"""SessionHook in a job that Horovod starts: two real processes that train together, with Gloo."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from tensortrial import create_trial

PROGRAM = """
    import sys
    import horovod.tensorflow as hvd
    from support.graph_training import Net, batches
    import tensortrial.hooks.tensorflow as tt

    hvd.init()
    hook = tt.SessionHook(
        "run", include_workers=sys.argv[1], include_collections=["weights", "gradients"],
        save_config=tt.SaveConfig(save_interval=1),
    )
    assert hook.worker == f"worker_{hvd.rank()}"
    net = Net(lambda optimizer: hook.wrap_optimizer(hvd.DistributedOptimizer(optimizer)))
    with net.graph.as_default():
        hooks = [hvd.BroadcastGlobalVariablesHook(0), hook]
    with net.session(hooks) as session:
        for x, y in batches(8)[hvd.rank() :: hvd.size()]:
            session.run(net.train, net.feed(x, y))
    hook.close()
"""


@pytest.fixture
def horovodrun(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(textwrap.dedent(PROGRAM))
    return Path(sys.executable).parent / "horovodrun"


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("workers", ["one", "all"])
def test_two_processes(horovodrun: Path, tmp_path: Path, workers: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))}
    command = [sys.executable, horovodrun, "-np", "2", "--gloo", sys.executable, "train.py", workers]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr

    trial = create_trial(tmp_path / "run")
    names = ["worker_0", "worker_1"] if workers == "all" else ["worker_0"]
    assert trial.workers() == names
    assert trial.num_workers == len(names)
    assert trial.loaded_all_steps
    (loss,) = trial.tensor_names(collection="losses")
    assert trial.tensor(loss).steps() == [0, 1, 2, 3]
    assert len(trial.tensor_names(collection="gradients")) == 4
    if workers == "all":
        first, second = (trial.tensor(loss).value(2, worker=name) for name in names)
        assert first != second
        # What Horovod averages is the same everywhere, and so are the weights.
        for collection in ("weights", "gradients"):
            for tensor in map(trial.tensor, trial.tensor_names(collection=collection)):
                first, second = (tensor.value(3, worker=name) for name in names)
                np.testing.assert_allclose(first, second, rtol=1e-6)
