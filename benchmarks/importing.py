"""The CPU time of importing event files: against TensorBoard's own reader, and against reading the bytes."""

from __future__ import annotations

import gc
import math
import shutil
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np
from common import cpu_seconds, header, line, scratch

from tensortrial.importers.tensorboard import import_runs
from tensortrial.tfevents.summary import event, first_event, histogram, scalar
from tensortrial.tfevents.tfrecord import framed

MEGABYTES = 30
ROUNDS = 5
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


def seconds(call: Callable[[], object]) -> float:
    """Return the CPU time of all threads of this process, whatever else the machine serves."""
    gc.collect()  # what the other reader has left
    return cpu_seconds(call)


def load(folder: Path) -> None:
    sys.modules.setdefault("tensorboard.compat.notf", ModuleType("tensorboard.compat.notf"))
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    EventAccumulator(str(folder), size_guidance=dict.fromkeys(("scalars", "histograms"), 0)).Reload()


def main() -> None:
    header(f"Importing an event file of {MEGABYTES} MB, {ROUNDS} times in turns: medians of CPU time and of ratios")
    cases = [("scalars only", scalars(), "1,000,000 points/s"), ("scalars and histograms", mixed(), "")]
    for what, events, aim in cases:
        with scratch() as folder:
            source = folder / "events"
            source.mkdir()
            file = source / "events.out.tfevents.1700000000.bench"
            count = write(file, events)
            rounds = []
            for _ in range(ROUNDS):
                target = folder / "run"
                shutil.rmtree(target, ignore_errors=True)
                ours = seconds(partial(import_runs, source, target, progress=False))
                theirs = seconds(partial(load, source)) if find_spec("tensorboard") else math.nan
                rounds.append((ours, theirs, seconds(file.read_bytes)))
            took = statistics.median(ours for ours, _, _ in rounds)
            line(f"{what}: {count:,} events", f"{took:.2f} s, {count / took:,.0f} points/s", aim)
            line("  TensorBoard's EventAccumulator over ours", ratio((theirs, ours) for ours, theirs, _ in rounds))
            line("  ours over reading the bytes", ratio((ours, read) for ours, _, read in rounds))


def ratio(pairs: Iterable[tuple[float, float]]) -> str:
    return f"{statistics.median(one / other for one, other in pairs):.1f}"


if __name__ == "__main__":
    main()
