from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from .peer import Peer
from .work import Tensors

_STEPS_WAITING = 4


class Lance(Peer):
    title = "Lance"
    packages = ("pylance",)
    usage = (
        "`write_dataset` of a stream of batches, a step each, from a thread of its own, so that nothing is seen before "
        "the end; the columns name, step and value (binary); `take` of rows to read, whose names and steps are read "
        "once"
    )

    def load(self) -> None:
        import lance
        import pyarrow

        self._lance, self._arrow = lance, pyarrow

    def begin(self, work: Tensors | None, statistics: bool = False) -> None:
        arrow = self._arrow
        columns = [("name", arrow.string()), ("step", arrow.int64()), ("value", arrow.large_binary())]
        self._schema = arrow.schema(columns)
        self._waiting: queue.Queue[Any] = queue.Queue(_STEPS_WAITING)
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def save_tensors(self, step: int, tensors: Mapping[str, np.ndarray]) -> None:
        values = self._arrow.array([array.tobytes() for array in tensors.values()], self._arrow.large_binary())
        columns = [self._arrow.array(list(tensors)), self._arrow.array([step] * len(tensors)), values]
        self._waiting.put(self._arrow.record_batch(columns, schema=self._schema))

    def close(self) -> None:
        self._waiting.put(None)
        self._thread.join()
        if self._failure:
            raise self._failure

    def _write(self) -> None:
        try:
            reader = self._arrow.RecordBatchReader.from_batches(self._schema, self._batches())
            self._lance.write_dataset(reader, str(self.folder / "run.lance"))
        except BaseException as exc:  # noqa: BLE001 - raised by `close`
            self._failure = exc
            while self._waiting.get() is not None:
                pass

    def _batches(self) -> Iterator[Any]:
        while (batch := self._waiting.get()) is not None:
            yield batch

    def open(self) -> None:
        self._dataset = self._lance.dataset(str(self.folder / "run.lance"))
        table = self._dataset.to_table(columns=["name", "step"])
        names, steps = table["name"].to_pylist(), table["step"].to_pylist()
        self._rows = {key: row for row, key in enumerate(zip(names, steps, strict=True))}
        self._names, self._steps = sorted(set(names)), sorted(set(steps))

    def names(self) -> list[str]:
        return self._names

    def steps(self) -> list[int]:
        return self._steps

    def value(self, name: str, step: int) -> np.ndarray:
        return self._take([self._rows[name, step]])[0]

    def series(self, name: str) -> Iterable[np.ndarray]:
        return self._take([self._rows[name, step] for step in self._steps])

    def at(self, step: int) -> dict[str, np.ndarray]:
        names = [name for name in self._names if (name, step) in self._rows]
        return dict(zip(names, self._take([self._rows[name, step] for name in names]), strict=True))

    def _take(self, rows: list[int]) -> list[np.ndarray]:
        values = self._dataset.take(rows, columns=["value"])["value"]
        return [np.frombuffer(value.as_buffer(), np.float32) for value in values]
