"""Which of the job's processes this is."""

from __future__ import annotations

import os
from dataclasses import dataclass

# What launchers tell their processes: torchrun, Open MPI, Horovod, Slurm, in the order they are believed.
_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


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
    for number, size in _VARIABLES:
        try:
            return Rank(int(os.environ[number]), int(os.environ[size]))
        except (KeyError, ValueError):
            continue
    return Rank()
