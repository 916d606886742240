"""Workers of Ray Train, each of which is a worker of the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tensortrial

PROGRAM = """
import sys

def train(config):
    import ray.train
    import ray.train.collective
    import tensortrial
    rank = ray.train.get_context().get_world_rank()
    with tensortrial.Run(config["out"], include_workers="all", save_config={"save_interval": 1}) as run:
        ray.train.collective.barrier()  # a worker that had ended before the other began would look like an older run
        for step in range(3):
            run.log({"loss": 10.0 * rank + step}, step=step)

if __name__ == "__main__":
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
    ray.init(num_cpus=2, include_dashboard=False)
    scaling = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5})
    out, storage = sys.argv[1:]
    DataParallelTrainer(train, train_loop_config={"out": out}, scaling_config=scaling,
                        run_config=RunConfig(storage_path=storage)).fit()
    import tensortrial
    with tensortrial.Run(out + "-driver") as run:  # outside of a worker
        run.log({"loss": 1.0}, step=0)
"""


@pytest.mark.distributed
def test_workers_of_ray_train_are_workers_of_the_run(tmp_path: Path) -> None:
    # Ray's sockets are in the folder for temporary files; their paths may not be long.
    environment = os.environ | {"RAY_TRAIN_V2_ENABLED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    (tmp_path / "job.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "job.py", str(tmp_path / "run"), str(tmp_path / "ray")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    trial = tensortrial.create_trial(tmp_path / "run")
    assert trial.workers() == ["worker_0", "worker_1"]
    loss = trial.tensor("loss")
    for number in (0, 1):
        values = [float(loss.value(step, worker=f"worker_{number}")) for step in range(3)]
        assert values == [10.0 * number + step for step in range(3)]
    assert tensortrial.create_trial(tmp_path / "run-driver").workers() == ["worker_0"]
