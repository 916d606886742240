"""Which of the job's processes this is."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass

# What launchers tell their processes, in the order they are believed: torchrun, Open MPI, Horovod, then TensorFlow's
# TF_CONFIG, then Slurm, which also starts jobs that number their processes themselves.
_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
)
_SLURM = (("SLURM_PROCID", "SLURM_NTASKS"),)
# The tasks of a TensorFlow cluster that train, in the order of their numbers.
_TRAINING_TASKS = ("chief", "master", "worker")


@dataclass(frozen=True)
class Rank:
    """The number of this worker, from 0, and how many there are. One that is not a process has a name of its own."""

    number: int = 0
    size: int = 1
    name: str = ""

    @property
    def worker(self) -> str:
        return self.name or f"worker_{self.number}"


def rank_from_environment() -> Rank:
    """The rank that the launcher set in the environment; a job of one process without any."""
    return _numbered(_VARIABLES) or _tf_config() or _numbered(_SLURM) or Rank()


def _numbered(variables: Iterable[tuple[str, str]]) -> Rank | None:
    for number, size in variables:
        try:
            return Rank(int(os.environ[number]), int(os.environ[size]))
        except (KeyError, ValueError):
            continue
    return None


def _tf_config() -> Rank | None:
    """The rank among a TensorFlow cluster's chief and workers. An evaluator or a parameter server comes after them."""
    try:
        config = json.loads(os.environ["TF_CONFIG"])
        task, index = config["task"]["type"], int(config["task"]["index"])
        sizes = {kind: len(config["cluster"].get(kind, ())) for kind in _TRAINING_TASKS}
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    size = sum(sizes.values())
    if not size:
        return None
    if task not in sizes:
        return Rank(size + index, size)
    before = _TRAINING_TASKS[: _TRAINING_TASKS.index(task)]
    return Rank(sum(sizes[kind] for kind in before) + index, size)
