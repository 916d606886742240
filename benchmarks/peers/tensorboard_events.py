from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from .peer import NotOffered, Peer
from .work import Tensors


class TensorBoard(Peer):
    title = "TensorBoard"
    packages = ("tensorboard",)
    usage = (
        "torch's `SummaryWriter`: `add_scalar`, and `add_histogram` where others save a tensor, since it keeps no raw "
        "ones; `EventAccumulator` with all events kept to read"
    )
    keeps = ("tensors", "scalars")
    scalar_limit = 200_000
    tensor_limit = 2_000

    def load(self) -> None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        self._accumulator = EventAccumulator

    def begin(self, work: Tensors | None, statistics: bool = False) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(self.folder / "run"))

    def save_tensors(self, step: int, tensors: Mapping[str, np.ndarray]) -> None:
        for name, array in tensors.items():
            self._writer.add_histogram(name, array, step)

    def save_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()

    def open(self) -> None:
        keep_all = {"scalars": 0, "histograms": 0, "compressedHistograms": 1, "tensors": 0, "images": 1}
        self._events = self._accumulator(str(self.folder / "run"), size_guidance=keep_all)
        self._events.Reload()

    def names(self) -> list[str]:
        tags = self._events.Tags()
        return sorted(tags["scalars"] or tags["histograms"])

    def steps(self) -> list[int]:
        tags = self._events.Tags()
        name = self.names()[0]
        events = self._events.Scalars(name) if tags["scalars"] else self._events.Histograms(name)
        return [event.step for event in events]

    def value(self, name: str, step: int) -> np.ndarray:
        raise NotOffered

    def scalars(self, name: str) -> list[float]:
        return [event.value for event in self._events.Scalars(name)]

    def statistics(self) -> dict[str, tuple[float, float]]:
        found = {}
        for name in self.names():
            values = [event.histogram_value for event in self._events.Histograms(name)]
            means = [value.sum / value.num for value in values]
            norms = [math.sqrt(value.sum_squares) for value in values]
            found[name] = (sum(means) / len(means), sum(norms) / len(norms))
        return found
