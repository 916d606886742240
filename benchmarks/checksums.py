"""What checksums cost: opening and querying a run of many index files, and writing index files and chunks.

Each is compared with the same code with its checksums left out.

    python benchmarks/checksums.py
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
from common import header, line, scratch

import tensortrial
from tensortrial.format import index_reader, index_types, index_writer, parquet_writer, verified_files
from tensortrial.format.checksum import Seal
from tensortrial.format.chunk_writer import ChunkWriter
from tensortrial.format.index_types import IndexedStep
from tensortrial.format.record import Plan, Step, TensorSpec
from tensortrial.mode import ModeKeys
from tensortrial.storage.open import open_storage

FILES = (200, 2000)
REPEATS = 5


class _NoSums:
    def passing(self, pieces: Iterable[bytes | memoryview]) -> Iterable[bytes | memoryview]:
        return pieces

    def finish(self) -> bytes:
        return b""


@contextmanager
def _plain_parquet(sink: Any, schema: Any, **options: Any) -> Iterator[pq.ParquetWriter]:
    with pq.ParquetWriter(sink.file, schema, **options) as writer:
        yield writer


@contextmanager
def without_checksums() -> Iterator[None]:
    """Leave out what computes and verifies the checksums of Parquet files."""
    with ExitStack() as stack:
        for module, name, instead in (
            (index_types, "read_seal", lambda *_: None),
            (index_reader, "check_file", lambda *_: None),
            (verified_files, "read_seal", lambda path, *_: Seal(path, 0, b"", 0)),
            (index_writer, "sealed_parquet", _plain_parquet),
            (parquet_writer, "BlockSums", _NoSums),
            (parquet_writer, "_crc", lambda _: None),
        ):
            stack.enter_context(mock.patch.object(module, name, instead))
        yield


def compare(what: str, work: Callable[[], object], unit: str = "ms", scale: float = 1e3) -> None:
    """Print the least processor time of the work with checksums and without, measured in turn."""
    taken: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(REPEATS):
        for checked in (True, False):
            with ExitStack() as stack:
                if not checked:
                    stack.enter_context(without_checksums())
                begun = time.process_time()
                work()
                taken[checked].append(time.process_time() - begun)
    checked, bare = min(taken[True]) * scale, min(taken[False]) * scale
    line(what, f"{checked:.2f} {unit}, {bare:.2f} without: {checked / bare:.2f}x")


def indexed(names: int) -> IndexedStep:
    specs = [
        TensorSpec(Plan(f"layer{name}.weight", ("weights",), True), "float32", (3, 3), 36) for name in range(names)
    ]
    step = IndexedStep(Step(ModeKeys.TRAIN, 0, 0))
    step.add(specs, [time.time_ns()] * names)
    values = np.random.default_rng(0).normal(size=(names, 2))
    for row, (mean, l2) in enumerate(values.tolist()):
        step.add_statistics(row, {"mean": mean, "l2": l2})
    return step


def write_run(folder: Path, files: int) -> None:
    from tensortrial.hooks.core.configuration.options import Framework, HookOptions
    from tensortrial.hooks.core.process.rank import Rank
    from tensortrial.hooks.core.recorder import Recorder

    recorder = Recorder(HookOptions(folder, flush_seconds=0), Framework("benchmark"), Rank())
    for _ in range(files):
        recorder.begin_step()
        for name in range(50):
            recorder.save_scalar(f"metric{name}", float(name))
        recorder.flush()
    # Not closed: that would compact the index.


def read(folder: Path) -> None:
    with tensortrial.create_trial(folder) as trial:
        trial.steps()


def query(folder: Path) -> None:
    with tensortrial.create_trial(folder) as trial:
        trial.sql("select count(*), sum(scalar) from tensors where name = 'metric7'").fetchall()


def write_index_file(folder: Path, step: IndexedStep) -> None:
    sink = open_storage(folder).sink("index/x.parquet")
    index_writer.write_index(sink, *index_writer.indexed_rows("worker_0", [step], ""))
    sink.abort()


def write_chunk(folder: Path, values: Sequence[np.ndarray[Any, Any]], spec: TensorSpec) -> None:
    sink = open_storage(folder).sink("tensors/x.parquet")
    writer = ChunkWriter(sink, "tensors/x.parquet", "worker_0")
    for number, value in enumerate(values):
        writer.append_bytes(Step(ModeKeys.TRAIN, number, number), spec, memoryview(value).cast("B"))
    writer.finish()
    sink.abort()


def main() -> None:
    header("checksums of Parquet files")
    with scratch() as folder:
        for files in FILES:
            write_run(folder / str(files), files)
            compare(f"open a run of {files} index files, steps()", lambda files=files: read(folder / str(files)))
            compare("open it, and a first query on tensors", lambda files=files: query(folder / str(files)))
        for names in (50, 5000):
            step = indexed(names)
            compare(f"write an index file of {names} rows", lambda step=step: write_index_file(folder, step))
        for nbytes, count in ((4 << 10, 2000), (100 << 10, 200), (4 << 20, 16)):
            values = [np.full(nbytes, number % 256, np.uint8) for number in range(count)]
            spec = TensorSpec(Plan("w", (), True), "uint8", (nbytes,), nbytes)
            compare(
                f"write a value of {nbytes >> 10} kB into a chunk",
                lambda values=values, spec=spec: write_chunk(folder, values, spec),
                "us",
                1e6 / count,
            )


if __name__ == "__main__":
    main()
