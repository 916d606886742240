"""The rank of a process of a TensorFlow cluster, from TF_CONFIG."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tensortrial.hooks.core.process.rank import Rank, rank_from_environment

CHIEF = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}
WORKERS = {"worker": ["b:1", "c:1"]}
MASTER = {"master": ["a:1"], "worker": ["b:1"]}


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("RANK", "WORLD_SIZE", "OMPI_", "HOROVOD_", "SLURM_")):
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
