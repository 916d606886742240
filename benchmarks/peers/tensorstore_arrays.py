from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .peer import Peer
from .shards import Shards, steps_a_shard
from .work import Tensors


class GoogleTensorstore(Peer):
    title = "Google tensorstore"
    packages = ("tensorstore",)
    usage = (
        "the zarr3 driver, an array (steps, numbers) a tensor, a chunk a step, in shards of 1 MB that are written "
        "whole; not compressed; the writes and the reads of a step go on together; `file_io_sync` off, since no other "
        "peer waits for the disk"
    )
    by_series = True

    def load(self) -> None:
        import tensorstore

        self._tensorstore = tensorstore
        self._context = tensorstore.Context({"file_io_sync": False})

    def begin(self, work: Tensors | None, statistics: bool = False) -> None:
        assert work is not None
        size = steps_a_shard(work)
        layout = self._tensorstore.ChunkLayout(read_chunk_shape=[1, work.floats], write_chunk_shape=[size, work.floats])
        shape = [work.steps, work.floats]
        made = {
            name: self._tensorstore.open(
                self._spec(name),
                create=True,
                dtype=self._tensorstore.float32,
                shape=shape,
                chunk_layout=layout,
                context=self._context,
            )
            for name in work.names
        }
        self._arrays: dict[str, Any] = {name: future.result() for name, future in made.items()}
        (self.folder / "run.json").write_text(json.dumps({"names": work.names, "steps": work.steps}))
        self._shards, self._writing = Shards(work, self._write), []

    def _spec(self, name: str) -> dict[str, Any]:
        return {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{self.folder / 'run' / name}/"}}

    def save_tensors(self, step: int, tensors: Mapping[str, np.ndarray]) -> None:
        self._shards.add(step, tensors)
        # Memory must not grow with the run.
        while len(self._writing) > 400:
            self._writing.pop(0).result()

    def _write(self, name: str, first: int, values: np.ndarray) -> None:
        self._writing.append(self._arrays[name][first : first + len(values)].write(values))

    def close(self) -> None:
        self._shards.flush()
        for future in self._writing:
            future.result()

    def open(self) -> None:
        self._run = json.loads((self.folder / "run.json").read_text())
        self._arrays = {}

    def names(self) -> list[str]:
        return self._run["names"]

    def steps(self) -> list[int]:
        return list(range(self._run["steps"]))

    def value(self, name: str, step: int) -> np.ndarray:
        return self._array(name)[step].read().result()

    def series(self, name: str) -> Iterable[np.ndarray]:
        return self._array(name).read().result()

    def at(self, step: int) -> dict[str, np.ndarray]:
        reading = {name: self._array(name)[step].read() for name in self.names()}
        return {name: future.result() for name, future in reading.items()}

    def _array(self, name: str):
        if name not in self._arrays:
            self._arrays[name] = self._tensorstore.open(self._spec(name), open=True, context=self._context).result()
        return self._arrays[name]
