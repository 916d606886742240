"""The interface that each peer is put behind."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from .work import Scalars, Tensors

SHORT_STEPS = 2


class NotOffered(Exception):
    """The peer has no such thing."""


class Peer:
    """One way to keep the tensors and scalars of a training run below a folder.

    A process writes a run (`begin`, one `save_…` a step, `close`) or reads one (`load`, `open`, then the rest). What a
    peer does not offer raises NotOffered.
    """

    title: str
    packages: tuple[str, ...]
    usage: str
    keeps: tuple[str, ...] = ("tensors",)
    keeps_statistics = False  # with the values, if they are asked for when these are saved
    by_series = False  # reads one tensor at all steps faster than all tensors at one
    # No more than these, of a peer so slow that more only take longer: its figures are for each tensor and scalar.
    scalar_limit: int | None = None
    tensor_limit: int | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def versions(cls) -> str:
        return ", ".join(version(package) for package in cls.packages)

    def load(self) -> None:
        """Import what reading needs."""

    def warm_up(self, work: Tensors | Scalars) -> None:
        """Write `SHORT_STEPS` steps elsewhere: what is paid once in a process, such as imports, is paid then."""
        other = type(self)(Path(tempfile.mkdtemp(prefix=f"{self.folder.name}-short-", dir=self.folder.parent)))
        other.load()
        other.begin(replace(work, steps=SHORT_STEPS) if isinstance(work, Tensors) else None)
        for step in range(SHORT_STEPS):
            save: Any = other.save_tensors if isinstance(work, Tensors) else other.save_scalars
            save(step, work.at(step))
        other.close()
        shutil.rmtree(other.folder)  # smdebug makes it again when the process ends

    # The way in.

    def begin(self, work: Tensors | None, statistics: bool = False) -> None:
        """Start a run. `work` describes the data, for peers that need it; `statistics` also saves the mean and
        the l2 norm of each tensor."""

    def save_tensors(self, step: int, tensors: Mapping[str, np.ndarray]) -> None:
        raise NotOffered

    def save_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        raise NotOffered

    def close(self) -> None:
        """End the run: all of it can be read by others."""

    def compact(self) -> None:
        """What the documentation recommends for reading an ended run often."""

    # The way out.

    def open(self) -> None:
        raise NotOffered

    def names(self) -> list[str]:
        raise NotOffered

    def steps(self) -> list[int]:
        raise NotOffered

    def value(self, name: str, step: int) -> np.ndarray:
        """One tensor at one step, in memory that no file backs."""
        raise NotOffered

    def series(self, name: str) -> Iterable[np.ndarray]:
        """One tensor at all steps, in their order."""
        return [self.value(name, step) for step in self.steps()]

    def at(self, step: int) -> dict[str, np.ndarray]:
        """All tensors at one step."""
        return {name: self.value(name, step) for name in self.names()}

    def scalars(self, name: str) -> list[float]:
        """One scalar at all steps, in their order."""
        raise NotOffered

    def start_queries(self) -> None:
        """Do what the first query of a process pays for, whatever it asks: import and start a query engine."""

    def statistics(self) -> dict[str, tuple[float, float]]:
        """Of each tensor the mean over all steps of its mean and of its l2 norm: here from all raw values."""
        sums = {name: np.zeros(2) for name in self.names()}
        steps = self.steps()
        for name, array in self._all_values():
            flat = array.ravel()
            sums[name] += (float(flat.mean()), float(np.sqrt(np.dot(flat, flat))))
        return {name: (both[0] / len(steps), both[1] / len(steps)) for name, both in sums.items()}

    def _all_values(self) -> Iterator[tuple[str, np.ndarray]]:
        if self.by_series:
            return ((name, array) for name in self.names() for array in self.series(name))
        return (pair for step in self.steps() for pair in self.at(step).items())

    def files(self) -> Iterator[Path]:
        return (path for path in self.folder.rglob("*") if path.is_file())
