from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from .peer import Peer
from .shards import Shards, steps_a_shard
from .work import Tensors


class Zarr(Peer):
    title = "Zarr 3"
    packages = ("zarr",)
    usage = (
        "a group, an array (steps, numbers) a tensor, a chunk a step, in shards of 1 MB that are written whole; not "
        "compressed; the number of steps is known to it beforehand"
    )
    by_series = True

    def load(self) -> None:
        import zarr

        self._zarr = zarr

    def begin(self, work: Tensors | None, statistics: bool = False) -> None:
        assert work is not None
        group = self._zarr.create_group(self.folder / "run.zarr")
        size = steps_a_shard(work)
        shape = (-(-work.steps // size) * size, work.floats)
        sharded = {"shards": (size, work.floats)} if size > 1 else {}
        self._arrays = {
            name: group.create_array(
                name, shape=shape, chunks=(1, work.floats), dtype="float32", compressors=None, **sharded
            )
            for name in work.names
        }
        group.attrs["steps"] = work.steps
        self._shards = Shards(work, self._write)

    def save_tensors(self, step: int, tensors: Mapping[str, np.ndarray]) -> None:
        self._shards.add(step, tensors)

    def _write(self, name: str, first: int, values: np.ndarray) -> None:
        self._arrays[name][first : first + len(values)] = values

    def close(self) -> None:
        self._shards.flush()

    def open(self) -> None:
        self._group = self._zarr.open_group(self.folder / "run.zarr", mode="r")
        self._arrays = {}

    def names(self) -> list[str]:
        return sorted(self._group.array_keys())

    def steps(self) -> list[int]:
        return list(range(self._group.attrs["steps"]))

    def value(self, name: str, step: int) -> np.ndarray:
        return self._array(name)[step]

    def series(self, name: str) -> Iterable[np.ndarray]:
        return self._array(name)[: self._group.attrs["steps"]]

    def _array(self, name: str):
        if name not in self._arrays:
            self._arrays[name] = self._group[name]
        return self._arrays[name]
