"""One peer does one kind of work, in a process of its own, and prints what it took as JSON.

python -m peers.worker PEER tensors|scalars write|read|discover|statistics FOLDER --work '{…}'
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from common import median_seconds, seconds

from . import adapter
from .peer import SHORT_STEPS, NotOffered, Peer
from .work import Scalars, Tensors

_POINTS = 200  # single values read from the page cache
_COLD = 5  # times that each cold read is taken


def write_tensors(peer: Peer, work: Tensors, with_statistics: bool = False) -> dict[str, Any]:
    """Write a run. Its steady state is what it took longer than a short run, for each tensor that it has more."""
    steps = [work.at(step) for step in range(work.steps)]
    new_process, short = seconds(lambda: peer.warm_up(work)), seconds(lambda: peer.warm_up(work))
    peer.load()
    peer.begin(work, with_statistics)
    wall, cpu = time.perf_counter(), time.process_time()
    for step, tensors in enumerate(steps):
        peer.save_tensors(step, tensors)
    looped = time.perf_counter() - wall
    peer.close()
    whole = time.perf_counter() - wall
    found = {"seconds": whole, "loop": looped, "cpu": time.process_time() - cpu}
    found |= {"new process": new_process, "short": short}
    found["steady"] = (whole - short) / (work.count - SHORT_STEPS * work.per_step)
    return {**found, "count": work.count, "bytes": sum(path.stat().st_size for path in peer.files())}


def write_scalars(peer: Peer, work: Scalars) -> dict[str, Any]:
    steps = [work.at(step) for step in range(work.steps)]
    peer.warm_up(work)
    peer.load()
    peer.begin(None)
    wall, cpu = time.perf_counter(), time.process_time()
    waited = []
    for step, scalars in enumerate(steps):
        before = time.perf_counter()
        peer.save_scalars(step, scalars)
        waited.append((time.perf_counter() - before) / work.per_step)
    peer.close()
    found = {"seconds": time.perf_counter() - wall, "each": statistics.median(waited), "cpu": time.process_time() - cpu}
    return {**found, "count": work.count, "bytes": sum(path.stat().st_size for path in peer.files())}


def discover(peer: Peer, work: Tensors | Scalars) -> dict[str, Any]:
    """List tensors and steps: the first time, and again when nothing is new."""

    def listing() -> tuple[list[str], list[int]]:
        return peer.names(), peer.steps()

    begun = time.perf_counter()
    peer.load()
    loaded = time.perf_counter()
    peer.open()
    names, steps = listing()
    first = time.perf_counter()
    assert [name for name in names if name in set(work.names)] == work.names, names[:5]
    assert list(steps) == list(range(work.steps)), steps[:5]
    again = median_seconds(listing, 21)
    return {"import": loaded - begun, "first": first - loaded, "again": again}


def read_tensors(peer: Peer, work: Tensors) -> dict[str, Any]:
    peer.load()
    peer.open()
    peer.names()
    peer.steps()
    spread = [(number * 7919 % work.per_step, number * 104_729 % work.steps) for number in range(_POINTS)]
    found: dict[str, Any] = {}
    for layer, step in (spread[0], spread[-1]):  # once unmeasured, and checked
        check([peer.value(work.names[layer], step)], [work.array(layer, step)])
        check(peer.series(work.names[layer]), work.series(work.names[layer]))
        at = peer.at(step)
        check([at[name] for name in work.names], [work.array(i, step) for i in range(work.per_step)])
    found["first"] = _reads(peer, work, spread, lambda: None, _POINTS)
    found["again"] = _reads(peer, work, spread, lambda: None, _POINTS)
    os.sync()  # only what is on the disk can leave the page cache
    found["cold"] = _reads(peer, work, spread[::-1], lambda: evict(peer.files()), _COLD)
    return found


def _reads(
    peer: Peer, work: Tensors, points: list[tuple[int, int]], before: Callable[[], None], count: int
) -> dict[str, float]:
    """Median seconds of each way to read, each time somewhere else; the caller repeats the same places."""
    few = max(3, min(count, 11))
    layers, steps = [layer for layer, _ in points], [step for _, step in points]

    def median(read: Callable[[int], Any], times: int) -> float:
        taken = []
        for number in range(times):
            before()
            taken.append(seconds(lambda number=number: read(number)))
        return statistics.median(taken)

    return {
        "value": median(lambda number: peer.value(work.names[layers[number]], steps[number]), count),
        "series": median(lambda number: peer.series(work.names[layers[number]]), few),
        "at": median(lambda number: peer.at(steps[number]), few),
    }


def check(found: Iterable[np.ndarray], expected: Iterable[np.ndarray]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(one).ravel(), other)


def evict(paths: Iterable[Path]) -> None:
    """Drop these files, which are on the disk already, from the page cache. Their names and sizes stay known."""
    for path in paths:
        number = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(number)


def read_scalars(peer: Peer, work: Scalars) -> dict[str, Any]:
    peer.load()
    peer.open()
    name = work.names[len(work.names) // 2]
    np.testing.assert_allclose(peer.scalars(name), work.series(name), rtol=1e-7)
    return {}


def read_statistics(peer: Peer, work: Tensors) -> dict[str, Any]:
    peer.load()
    peer.open()
    start, first = seconds(peer.start_queries), seconds(peer.statistics)
    found = peer.statistics()
    for name in (work.names[0], work.names[-1]):
        values = work.series(name).astype(np.float64)
        expected = values.mean(axis=1).mean(), np.sqrt((values**2).sum(axis=1)).mean()
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-6)
    return {"start": start, "first": first, "again": median_seconds(peer.statistics, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer")
    parser.add_argument("kind", choices=["tensors", "scalars"])
    parser.add_argument("action", choices=["write", "write-statistics", "read", "discover", "statistics"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--work", type=json.loads)
    arguments = parser.parse_args()
    peer = adapter(arguments.peer)(arguments.folder)
    peer.folder.mkdir(parents=True, exist_ok=True)
    work = (Tensors if arguments.kind == "tensors" else Scalars)(**arguments.work)
    try:
        found = _ACTIONS[arguments.kind, arguments.action](peer, work)
    except NotOffered:
        found = None
    print(json.dumps(found))


def _write_statistics(peer: Peer, work: Tensors) -> dict[str, Any]:
    found = write_tensors(peer, work, with_statistics=True)
    peer.compact()
    return found


_ACTIONS: dict[tuple[str, str], Callable[[Peer, Any], dict[str, Any]]] = {
    ("tensors", "write"): write_tensors,
    ("tensors", "write-statistics"): _write_statistics,
    ("tensors", "read"): read_tensors,
    ("tensors", "discover"): discover,
    ("tensors", "statistics"): read_statistics,
    ("scalars", "write"): write_scalars,
    ("scalars", "read"): read_scalars,
    ("scalars", "discover"): discover,
}


if __name__ == "__main__":
    main()
