"""Writes runs through the real claim and writer, as a hook would, for tests of what reads them."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tensortrial.config.collection import Collection
from tensortrial.dtypes import storable
from tensortrial.format.checksum import sealed
from tensortrial.format.record import Plan, Record, Step
from tensortrial.format.schema import FROM_START, RunInfo, WorkerInfo
from tensortrial.mode import ModeKeys
from tensortrial.storage.open import open_storage
from tensortrial.write.claim import Resumption, claim, claim_again
from tensortrial.write.progress import Progress
from tensortrial.write.writer import Writer

CREATED = "2026-01-01T00:00:00+00:00"
# Nanoseconds since 1970 of that moment.
EPOCH = 1_767_225_600_000_000_000

TRAIN, EVAL, PREDICT, GLOBAL = ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT, ModeKeys.GLOBAL


def edit_document(file: Path, **changes: Any) -> None:
    """Change keys of a JSON document of a run by hand, which takes the checksum away."""
    document = {**json.loads(file.read_text()), **changes}
    del document["checksum"]
    file.write_text(json.dumps(document))


def forge_file(run: Path, file: Path, table: pa.Table, **options: Any) -> None:
    """Replace a Parquet file of a run by a table, with the checksums that a careful forger would compute."""
    data = pa.BufferOutputStream()
    pq.write_table(table, data, **options)
    file.write_bytes(b"".join(sealed(str(file.relative_to(run)), memoryview(data.getvalue()))))


class Job:
    """One worker of a job, which begins or resumes a run and writes steps to it."""

    def __init__(  # noqa: PLR0913 - the options of a writer
        self,
        url: str | os.PathLike[str],
        worker: str = "worker_0",
        num_workers: int = 1,
        *,
        resume: bool = False,
        collections: Iterable[Collection] = (),
        saved: Iterable[str] = (),
        storage_options: Mapping[str, Any] | None = None,
        codec: str = "none",
        steps_per_directory: int = 1000,
        **writer: Any,
    ) -> None:
        self.storage = open_storage(url, storage_options)
        went = Resumption(self.storage, worker, num_workers).progress() if resume else Progress()
        run = RunInfo(CREATED, "test", num_workers, codec, steps_per_directory, id=uuid.uuid4().hex)
        info = WorkerInfo(
            worker,
            num_workers,
            CREATED,
            [each.to_json_dict() for each in collections],
            list(saved),
            went.session,
            went.global_step,
            went.mode_steps,
        )
        first_flush = FROM_START
        if resume:
            first_flush = claim_again(self.storage, run, info)
        else:
            claim(self.storage, run, info)
        self.next_global_step = went.global_step
        self.next_mode_steps = {mode: went.mode_steps.get(mode.name, 0) for mode in ModeKeys}
        self.writer = Writer(
            self.storage,
            worker,
            codec=codec,
            first_flush=first_flush,
            steps_per_directory=steps_per_directory,
            **writer,
        )

    def begin(self, mode: ModeKeys = GLOBAL) -> Step:
        """Count one step further, saving nothing yet."""
        step = Step(mode, self.next_mode_steps[mode], self.next_global_step)
        self.next_mode_steps[mode] += 1
        self.next_global_step += 1
        return step

    def put(self, step: Step, values: Mapping[str, Any], closes: bool = False, **plan: Any) -> None:
        """Hand values to the writer. `plan` holds for all of them; a value may be a (plan, value) of its own."""
        records = []
        for name, value in values.items():
            own, value = value if isinstance(value, tuple) else (plan, value)
            kept = value if isinstance(value, float) else storable(np.array(value, copy=True))
            planned = Plan(name, own.get("collections", ("default",)), own.get("raw", True), *_reduced(own))
            records.append(Record(planned, kept, EPOCH + step.global_step * 1_000_000))
        self.writer.put(step, records, closes)

    def step(self, values: Mapping[str, Any], mode: ModeKeys = GLOBAL, **plan: Any) -> Step:
        """One whole step."""
        step = self.begin(mode)
        self.put(step, values, closes=True, **plan)
        return step

    def publish(self, values: Mapping[str, Any], mode: ModeKeys = GLOBAL, **plan: Any) -> None:
        """One whole step, which readers see from now on."""
        self.step(values, mode, **plan)
        self.flush()

    def skip(self, mode: ModeKeys = GLOBAL) -> Step:
        """A step at which nothing is saved."""
        return self.begin(mode)

    def flush(self) -> None:
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()

    def abandon(self) -> None:
        """Leave the run as a process does that was killed: no reader of this process has what is not published."""
        self.writer._unregister()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _reduced(plan: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what of a plan follows `raw`, in the order of its fields."""
    last = plan.get("digest", False), plan.get("by_axis", ()), plan.get("sketch", False)
    return plan.get("statistics", ()), plan.get("histogram", False), None, *last


def chunk(run: Path, flush: int, worker: str = "worker_0") -> Path:
    """Return the file of raw values that a worker wrote with a flush."""
    (found,) = run.glob(f"tensors/*/*/worker={worker}/{flush:08d}.parquet")
    return found


def index_file(run: Path, flush: int, worker: str = "worker_0") -> Path:
    """Return the index file that a worker wrote with a flush."""
    (found,) = run.glob(f"index/worker={worker}/*/{flush:08d}.parquet")
    return found


def flip(path: Path, position: int, bits: int = 4) -> None:
    """Flip bits of a byte of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= bits
    path.write_bytes(data)
