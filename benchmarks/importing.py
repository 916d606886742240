"""How long importing event files takes: against TensorBoard's own reader, and against reading the bytes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np
from common import header, line, scratch

from tensortrial.importers.tensorboard import import_runs
from tensortrial.tfevents.summary import event, first_event, histogram, scalar
from tensortrial.tfevents.tfrecord import framed

MEGABYTES = 150
BEGAN = 1_700_000_000.0


def scalars() -> Iterator[bytes]:
    """Twenty numbers at each step."""
    tags, step = [f"train/metrics/number_{number}" for number in range(20)], 0
    while True:
        for number, tag in enumerate(tags):
            yield event(BEGAN + step / 10 + number / 1e4, step, scalar(tag, 1 / (1 + step + number)))
        step += 1


def mixed() -> Iterator[bytes]:
    """At each step twenty numbers, and histograms of twenty tensors at every tenth."""
    random = np.random.default_rng(0)
    counts, edges = np.histogram(random.normal(size=10_000), 64)
    names, numbers = [f"layers.{number}.weight" for number in range(20)], scalars()
    step = 0
    while True:
        yield from (next(numbers) for _ in range(20))
        if step % 10 == 0:
            for name in names:
                drawn = histogram(name, (edges * random.uniform(0.5, 2)).tolist(), counts.tolist())
                yield event(BEGAN + step / 10 + 0.01, step, drawn)
        step += 1


def write(path: Path, events: Iterator[bytes]) -> int:
    """Write a file of MEGABYTES; return the number of its events."""
    count = 0
    with path.open("wb") as file:
        file.write(framed([first_event(BEGAN)]))
        while file.tell() < MEGABYTES << 20:
            file.write(framed([next(events) for _ in range(50_000)]))
            count += 50_000
    return count


def seconds(call: Callable[[], object]) -> tuple[float, float]:
    """By the clock, and of all threads of this process."""
    clock, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - clock, time.process_time() - cpu


def load(folder: Path) -> None:
    sys.modules.setdefault("tensorboard.compat.notf", ModuleType("tensorboard.compat.notf"))
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    EventAccumulator(str(folder), size_guidance=dict.fromkeys(("scalars", "histograms"), 0)).Reload()


def main() -> None:
    header(f"Importing an event file of {MEGABYTES} MB (clock, CPU of all threads)")
    for what, events in (("scalars only", scalars()), ("scalars and histograms", mixed())):
        with scratch() as folder:
            source = folder / "events"
            source.mkdir()
            file = source / "events.out.tfevents.1700000000.bench"
            count = write(file, events)
            size = file.stat().st_size / 1e6
            read, _ = seconds(file.read_bytes)
            took, cpu = seconds(
                lambda source=source, folder=folder: import_runs(source, folder / "run", progress=False)
            )  # type: ignore[misc]
            line(f"{what}: {count:,} events", f"{took:.1f} s ({cpu:.1f} s CPU), {size / took:.0f} MB/s", "seconds")
            line("  against reading the bytes", f"{took / read:.0f}x")
            if find_spec("tensorboard"):
                theirs, _ = seconds(partial(load, source))
                line("  TensorBoard's EventAccumulator", f"{theirs:.1f} s, {theirs / took:.1f} times ours")


if __name__ == "__main__":
    main()
