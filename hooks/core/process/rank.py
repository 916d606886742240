"""The rank of this process among those of the job."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tensortrial.errors import ConfigurationError

# The environment variables of launchers, the most trusted ones first: torchrun, Open MPI, Horovod, MVAPICH, MPICH and
# Intel MPI; then launchers that number only the processes of a machine, such as Lightning; then TensorFlow's TF_CONFIG;
# then Slurm, which also starts jobs that number their processes themselves.
_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)
_SLURM = (("SLURM_PROCID", "SLURM_NTASKS"),)
# The tasks of a TensorFlow cluster that train, in the order of their numbers.
_TRAINING_TASKS = ("chief", "master", "worker")


@dataclass(frozen=True)
class Rank:
    """The number of this worker, from 0, and the number of workers. A worker that is not a process has its own name."""

    number: int = 0
    size: int = 1
    name: str = ""

    @property
    def worker(self) -> str:
        """The name of the worker."""
        return self.name or f"worker_{self.number}"


class Duty:
    """The worker that this process is, and whether it saves anything.

    With `include_workers` "one", only worker_0 saves.
    """

    def __init__(self, rank: Rank | Callable[[], Rank], include_workers: str) -> None:
        if include_workers not in ("one", "all"):
            raise ConfigurationError(f"include_workers must be 'one' or 'all', got {include_workers!r}")
        self._all = include_workers == "all"
        self.set_rank(rank)

    def set_rank(self, rank: Rank | Callable[[], Rank]) -> None:
        """Set the rank, or a function that returns it, now and at each `decide`."""
        self._source: Callable[[], Rank] = (lambda: rank) if isinstance(rank, Rank) else rank
        self.rank = self._source()

    def decide(self) -> None:
        """Determine the rank again. It changes only if the job turns out to be larger.

        The job's processes may have formed their group since.
        """
        found = self._source()
        if found.size > self.rank.size or self.rank.name:
            self.rank = found

    @property
    def worker(self) -> str:
        """The name of the worker."""
        return self.rank.worker

    @property
    def num_workers(self) -> int:
        """The number of workers of the job that save anything."""
        return self.rank.size if self._all else 1

    @property
    def saves(self) -> bool:
        """True if this worker saves anything."""
        return self._all or self.rank.number == 0


def rank_of_process() -> Rank:
    """Return the rank of this process, by what is known now.

    It comes from torch's default process group if there is one, else from Ray Train, else from the launcher.
    """
    # Not imported here: a job that has a process group has imported it.
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return Rank(distributed.get_rank(), distributed.get_world_size())
    return _rank_in_ray_train() or rank_from_environment()


def _rank_in_ray_train() -> Rank | None:
    """Return the rank of a worker of Ray Train, which sets no rank in the environment unless PyTorch is used."""
    # Not imported here: such a worker has imported it.
    train = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        context = train.get_context()
        return Rank(int(context.get_world_rank()), int(context.get_world_size()))
    except (AttributeError, RuntimeError, TypeError, ValueError):  # not in a worker
        return None


def rank_from_environment() -> Rank:
    """Return the rank that the launcher set in the environment; without one, that of a job of one process."""
    return _numbered(_VARIABLES) or _on_machine() or _tf_config() or _numbered(_SLURM) or Rank()


def _on_machine() -> Rank | None:
    """Return the rank that follows from the number of the process on its machine.

    That is a number in the job only on the first machine, or where the launcher says how many processes a machine has.
    Elsewhere the process has a name of its own until its process group exists.
    """
    local, size = _integer("LOCAL_RANK"), _integer("WORLD_SIZE")
    if local is None or size is None:
        return None
    machine, processes = _integer("NODE_RANK") or _integer("GROUP_RANK") or 0, _integer("LOCAL_WORLD_SIZE")
    if machine and processes is None:
        return Rank(machine + local, size, f"worker_{machine}.{local}")
    return Rank(machine * (processes or 0) + local, size)


def _integer(variable: str) -> int | None:
    try:
        return int(os.environ[variable])
    except (KeyError, ValueError):
        return None


def _numbered(variables: Iterable[tuple[str, str]]) -> Rank | None:
    found = ((_integer(number), _integer(size)) for number, size in variables)
    return next((Rank(number, size) for number, size in found if number is not None and size is not None), None)


def _tf_config() -> Rank | None:
    """Return the rank among a TensorFlow cluster's chief and workers. Evaluators and parameter servers come last."""
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
