"""Runs of one worker that a test resumes, takes over or leaves to another machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tensortrial.format.schema import end_path
from tensortrial.hooks.core.configuration.options import Framework, HookOptions
from tensortrial.hooks.core.process.rank import Rank
from tensortrial.hooks.core.recorder import Recorder
from tensortrial.storage.open import Storage
from tensortrial.write.lease import LeaseInfo, Process, read_leases

SECONDS = 60.0


def recorder(url: str | Path, rank: Rank = Rank(), **options: Any) -> Recorder:  # noqa: B008
    names = ["losses"]
    options.setdefault("include_workers", "all" if rank.size > 1 else "one")
    return Recorder(
        HookOptions(url, save_config={"save_interval": 1}, flush_seconds=0, **options),
        Framework("none", builtin=names, always_saved=names),
        lambda: rank,
    )


def step(recorder: Recorder, value: float) -> None:
    recorder.begin_step()
    recorder.save_scalars([("x", value)])
    recorder.end_step()


def held_elsewhere(storage: Storage, seconds: float = SECONDS, **changes: Any) -> LeaseInfo:
    """Leave a run behind whose worker_0 is a process of another machine that has not ended."""
    first = recorder(storage.url, storage_options=getattr(storage, "_options", None))
    step(first, 0)
    first.close()
    (lease,) = read_leases(storage)
    process = Process(17, "1", "elsewhere", "another boot")
    lease = replace(lease, process=process, seconds=seconds, released_at=None, **changes)
    storage.replace(lease.path, lease.to_bytes())
    storage.remove(end_path("worker_0"))
    return lease


def resume(storage: Storage, **options: Any) -> Recorder:
    return recorder(storage.url, resume=True, storage_options=getattr(storage, "_options", None), **options)
