"""A program of several processes that trains with MXNet."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tensortrial import create_trial

# With a parameter server. Its workers learn their numbers from the store.
WORKER = """
import os
import mxnet as mx
from mxnet import autograd, gluon
import tensortrial.hooks.mxnet as tt

store = mx.kv.create("dist_sync")
os.environ["RANK"], os.environ["WORLD_SIZE"] = str(store.rank), str(store.num_workers)
hook = tt.Hook(
    "run",
    include_workers="all",
    include_collections=["weights", "gradients"],
    save_config=tt.SaveConfig(save_interval=1),
)
net, loss = gluon.nn.Dense(2, in_units=4, prefix="net_"), gluon.loss.L2Loss(prefix="loss_")
net.initialize(mx.init.One())
hook.register_block(net)
hook.register_block(loss)
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=store)
for _ in range(3):
    with autograd.record():
        result = loss(net(mx.nd.ones((2, 4)) * (store.rank + 1)), mx.nd.zeros((2, 2)))
    result.backward()
    trainer.step(4)
hook.close()
"""


@pytest.mark.distributed
def test_workers_of_a_parameter_server_are_saved(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WORKER)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(port),
        "DMLC_NODE_HOST": "127.0.0.1",
        "DMLC_NUM_WORKER": "2",
        "DMLC_NUM_SERVER": "1",
        "OMP_NUM_THREADS": "1",
    }
    programs = {"scheduler": ["-c", "import mxnet"], "server": ["-c", "import mxnet"], "worker": ["train.py"]}
    processes = [
        subprocess.Popen(
            [sys.executable, *programs[role]], cwd=tmp_path, env={**os.environ, **common, "DMLC_ROLE": role}
        )
        for role in ("scheduler", "server", "worker", "worker")
    ]
    try:
        assert [process.wait(timeout=90) for process in processes] == [0, 0, 0, 0]
    finally:
        for process in processes:
            process.kill()
    trial = create_trial(tmp_path / "run")
    assert trial.workers() == ["worker_0", "worker_1"]
    assert trial.loaded_all_steps
    weights, gradients = trial.tensor("net_weight"), trial.tensor("gradient/net_weight")
    assert weights.steps() == [0, 1, 2]
    for step in range(3):
        np.testing.assert_array_equal(*(weights.value(step, worker=worker) for worker in trial.workers()))
    # A gradient is this worker's own: the second has inputs twice as large.
    first, second = (gradients.value(0, worker=worker) for worker in trial.workers())
    np.testing.assert_allclose(first * 4, second)


# Gluon's loader terminates its pool of forked processes when it is freed. Each is read to its end: to terminate a pool
# that works hangs now and then, also without a hook, if a process is killed while it holds the lock of the results.
LOADER = """
import mxnet as mx
from mxnet import gluon
import tensortrial.hooks.mxnet as tt

hook = tt.Hook("run")
hook.save_scalar("x", 1)
data = gluon.data.ArrayDataset(mx.nd.arange(16))
for _ in range(20):
    loader = gluon.data.DataLoader(data, batch_size=2, num_workers=4)
    assert sum(float(batch.sum().asscalar()) for batch in loader) == 120
    del loader
hook.close()
"""


@pytest.mark.slow
def test_data_loaders_end_with_a_hook(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOADER)
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, check=True, timeout=300)
    assert create_trial(tmp_path / "run").loaded_all_steps
