"""The JAX hook in a job of several processes, each with devices of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")
from tensortrial import create_trial

PROGRAM = """
import sys
import jax, jax.numpy as jnp, numpy as np
import tensortrial.hooks.jax as tt
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

hook = tt.Hook("run", include_workers="all", save_config=tt.SaveConfig(save_interval=1))
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
devices = np.array(jax.devices())
rows = Mesh(devices, ("rows",))
crossed = Mesh(devices[[0, 2, 3, 1]].reshape(2, 2), ("a", "b"))
whole = np.arange(32.0, dtype=np.float32).reshape(8, 4)

def put(mesh, *spec):
    return jax.make_array_from_callback(whole.shape, NamedSharding(mesh, P(*spec)), lambda index: whole[index])

hook.save_tree("weights", {
    "rows": put(rows, "rows"), "replicated": put(rows), "local": jnp.ones(2), "halves": put(crossed, None, "a"),
    "crossed": put(crossed, "a", "b"),
}, 0)
hook.flush()
jax.distributed.shutdown()  # waits for the other process, which has begun the run by then
hook.close()
"""


@pytest.mark.distributed
def test_each_process_saves_the_shards_that_it_holds(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("localhost", 0))
        address = f"localhost:{server.getsockname()[1]}"
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    jobs = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, address, str(rank)],
            cwd=tmp_path,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        errors = [job.communicate(timeout=200)[1] for job in jobs]
    finally:
        for job in jobs:
            job.kill()
    assert [job.returncode for job in jobs] == [0, 0], errors
    trial = create_trial(tmp_path / "run")
    assert trial.workers() == ["worker_0", "worker_1"]
    whole = np.arange(32.0).reshape(8, 4)
    for rank in range(2):
        worker = f"worker_{rank}"
        np.testing.assert_array_equal(trial.tensor("rows").value(0, worker=worker), whole[4 * rank :][:4])
        np.testing.assert_array_equal(trial.tensor("replicated").value(0, worker=worker), whole)
        # A process holds one device of each row of this mesh: two blocks that lie apart.
        blocks = [trial.tensor(f"crossed/shard_{number}").value(0, worker=worker) for number in range(2)]
        assert sorted(block.shape for block in blocks) == [(4, 2), (4, 2)]
        assert blocks[0][0, 0] != blocks[1][0, 0]
        np.testing.assert_array_equal(trial.tensor("halves").value(0, worker=worker), whole)
        assert trial.tensor("local").value(0, worker=worker).tolist() == [1, 1]
    assert not trial.has_tensor("crossed")
    assert "crossed/shard_1" in trial.tensor_names(collection="weights")
