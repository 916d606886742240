"""The CPU time of importing event files, and of exporting them again.

The import is compared with TensorBoard's own reader and with reading the bytes, the export with TensorBoard's own
writer of the same events, which it gets as objects.
"""

from __future__ import annotations

import gc
import math
import shutil
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from types import ModuleType

import numpy as np
from common import cpu_seconds, header, line, scratch

import tensortrial
from tensortrial.importers.tensorboard import import_runs
from tensortrial.tfevents.summary import event, first_event, histogram, scalar
from tensortrial.tfevents.tfrecord import framed

MEGABYTES = 30
ROUNDS = 5
OBJECTS = 50_000
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


def export(run: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    tensortrial.export(run, f"tensorboard:{target}", tables=["tensors"], progress=False)


def load(folder: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    EventAccumulator(str(folder), size_guidance=dict.fromkeys(("scalars", "histograms"), 0)).Reload()


def writer(source: Path, target: Path) -> Callable[[], None]:
    """Return a function that writes the first OBJECTS events of a file by TensorBoard's own writer."""
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
    from tensorboard.summary.writer.record_writer import RecordWriter

    events = list(islice(LegacyEventFileLoader(str(source)).Load(), OBJECTS))

    def call() -> None:
        with target.open("wb") as file:
            records = RecordWriter(file)
            for each in events:
                records.write(each.SerializeToString())

    return call


def main() -> None:
    sys.modules.setdefault("tensorboard.compat.notf", ModuleType("tensorboard.compat.notf"))
    header(f"An event file of {MEGABYTES} MB, {ROUNDS} times in turns: medians of CPU time and of ratios")
    cases = [("scalars only", scalars(), "1,000,000 points/s"), ("scalars and histograms", mixed(), "")]
    for what, events, aim in cases:
        with scratch() as folder:
            source = folder / "events"
            source.mkdir()
            file = source / "events.out.tfevents.1700000000.bench"
            count = write(file, events)
            has_peer, rounds = find_spec("tensorboard") is not None, []
            write_theirs = writer(file, folder / "theirs") if has_peer else None
            for _ in range(ROUNDS):
                target = folder / "run"
                shutil.rmtree(target, ignore_errors=True)
                ours = seconds(partial(import_runs, source, target, progress=False))
                theirs = seconds(partial(load, source)) if has_peer else math.nan
                exporting = seconds(partial(export, target, folder / "exported"))
                writing = seconds(write_theirs) * count / OBJECTS if write_theirs else math.nan
                rounds.append((ours, theirs, seconds(file.read_bytes), exporting, writing))
            imported, exported = (statistics.median(each[at] for each in rounds) for at in (0, 3))
            line(f"import, {what}: {count:,} events", f"{imported:.2f} s, {count / imported:,.0f} points/s", aim)
            line("  TensorBoard's EventAccumulator over ours", ratio((each[1], each[0]) for each in rounds))
            line("  ours over reading the bytes", ratio((each[0], each[2]) for each in rounds))
            line("export of the same", f"{exported:.2f} s, {count / exported:,.0f} points/s", aim)
            line("  TensorBoard's RecordWriter over ours", ratio((each[4], each[3]) for each in rounds))


def ratio(pairs: Iterable[tuple[float, float]]) -> str:
    return f"{statistics.median(one / other for one, other in pairs):.1f}"


if __name__ == "__main__":
    main()
