"""The rank of a process, as its launcher says it, and later the process group."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from support.programs import start
from tensortrial import create_trial
from tensortrial.hooks.core.process.rank import Rank, rank_from_environment

LAUNCHERS = ("RANK", "LOCAL_", "GROUP_", "NODE_", "WORLD_SIZE", "OMPI_", "HOROVOD_", "SLURM_", "PMI_", "MV2_", "TF_")
CHIEF = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}
WORKERS = {"worker": ["b:1", "c:1"]}
MASTER = {"master": ["a:1"], "worker": ["b:1"]}


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(LAUNCHERS):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("cluster", "task", "index", "expected"),
    [
        (CHIEF, "chief", 0, Rank(0, 3)),
        (CHIEF, "worker", 0, Rank(1, 3)),
        (CHIEF, "worker", "1", Rank(2, 3)),
        # Neither trains, and neither is worker_0.
        (CHIEF, "ps", 0, Rank(3, 3)),
        (CHIEF, "evaluator", 0, Rank(3, 3)),
        (WORKERS, "worker", 0, Rank(0, 2)),
        (WORKERS, "worker", 1, Rank(1, 2)),
        (MASTER, "master", 0, Rank(0, 2)),
        (MASTER, "worker", 0, Rank(1, 2)),
    ],
)
def test_the_chief_is_numbered_before_the_workers(
    monkeypatch: pytest.MonkeyPatch, cluster: Any, task: str, index: Any, expected: Rank
) -> None:
    config = {"cluster": cluster, "task": {"type": task, "index": index}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    monkeypatch.setenv("SLURM_PROCID", "7")
    monkeypatch.setenv("SLURM_NTASKS", "9")
    assert rank_from_environment() == expected


@pytest.mark.parametrize(
    "config", ["", "{}", "[]", "not JSON", '{"cluster": {}, "task": {"type": "worker", "index": 0}}', '{"task": 3}']
)
def test_a_tf_config_without_a_cluster_is_ignored(monkeypatch: pytest.MonkeyPatch, config: str) -> None:
    monkeypatch.setenv("TF_CONFIG", config)
    assert rank_from_environment() == Rank(0, 1)


PROGRAM = """
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
import tensortrial.hooks.pytorch as tt

torch.set_num_threads(1)

def train(hook, steps):
    net, loss = DistributedDataParallel(nn.Sequential(nn.Linear(4, 2))), nn.CrossEntropyLoss()
    hook.register_module(net)
    hook.register_loss(loss)
    for _ in range(steps):
        loss(net(torch.rand(8, 4)), torch.zeros(8, dtype=torch.long)).backward()
    hook.close()

def work(rank, size):
    for out, workers, resume in (("one", "one", False), ("all", "all", False), ("all", "all", True)):
        hook = tt.Hook(
            out, save_config=tt.SaveConfig(save_interval=1), include_workers=workers, save_all=True, resume=resume
        )
        assert hook.worker == "worker_0"
        dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/{out}{resume}", rank=rank, world_size=size)
        train(hook, 2)
        assert hook.worker == f"worker_{rank}"
        dist.barrier()
        dist.destroy_process_group()
        tt.del_hook()

if __name__ == "__main__":
    mp.spawn(work, (2,), nprocs=2)
"""


@pytest.mark.distributed
@pytest.mark.slow
def test_the_rank_of_a_hook_is_found_at_its_first_step(tmp_path: Path) -> None:
    """Processes of torch.multiprocessing, which make their hooks before the process group."""
    pytest.importorskip("torch")
    with start(PROGRAM, tmp_path, TENSORTRIAL_STRICT="1") as process:
        try:
            _, err = process.communicate(timeout=240)
        finally:
            process.kill()
    assert process.returncode == 0, err
    for out, steps, workers in (("one", 2, ["worker_0"]), ("all", 4, ["worker_0", "worker_1"])):
        trial = create_trial(tmp_path / out)
        assert trial.num_workers == len(workers)
        assert trial.steps() == list(range(steps))
        for name in ("Sequential_0.weight", "gradient/Sequential_0.weight", "CrossEntropyLoss_output_0"):
            assert [trial.tensor(name).workers(step) for step in trial.steps()] == [workers] * steps
        assert trial.loaded_all_steps


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, Rank(0, 1)),
        ({"RANK": "1", "WORLD_SIZE": "4"}, Rank(1, 4)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"}, Rank(2, 3)),
        ({"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "5", "SLURM_NTASKS": "6"}, Rank(1, 2)),
        ({"RANK": "x", "WORLD_SIZE": "2"}, Rank(0, 1)),
        ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2", "TF_CONFIG": "{}"}, Rank(1, 2)),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "2"}, Rank(1, 2)),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "2", "NODE_RANK": "0"}, Rank(1, 2)),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "8", "NODE_RANK": "1", "LOCAL_WORLD_SIZE": "4"}, Rank(5, 8)),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "8", "GROUP_RANK": "1", "LOCAL_WORLD_SIZE": "4"}, Rank(5, 8)),
        # Which number it has, only the process group knows; but it is not worker_0.
        ({"LOCAL_RANK": "0", "WORLD_SIZE": "8", "NODE_RANK": "1"}, Rank(1, 8, "worker_1.0")),
        ({"LOCAL_RANK": "1"}, Rank(0, 1)),
        ({"LOCAL_RANK": "3", "RANK": "7", "WORLD_SIZE": "8"}, Rank(7, 8)),
        ({"PMI_RANK": "2", "PMI_SIZE": "4"}, Rank(2, 4)),
        ({"MV2_COMM_WORLD_RANK": "2", "MV2_COMM_WORLD_SIZE": "4"}, Rank(2, 4)),
    ],
    ids=str,
)
def test_the_rank_follows_from_the_variables_of_launchers(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: Rank
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert rank_from_environment() == expected
