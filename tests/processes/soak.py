"""Lets many processes train into one run while others read it and one compacts it: `make soak SECONDS=600`.

A seed decides how often each process flushes, and the codec. The program reports how many rows were written, how many
of these are missing or wrong afterwards (0 of each, or it fails), how long the slowest read of new steps took, and the
largest memory of a writer, a reader and the compacting process.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

# OpenBLAS starts its threads when it is imported.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from audit import Auditor, broken_promises, differences  # noqa: E402
from digits_job import JobOptions, train  # noqa: E402

from support.training import digits  # noqa: E402
from tensortrial.errors import MissingCollectionFiles, RunNotFound  # noqa: E402
from tensortrial.maintenance.compaction import compact  # noqa: E402

PATIENCE_SECONDS = 600
# Processes are forked from this one, which has imported PyTorch and never starts a thread.
_context = multiprocessing.get_context("fork")


@dataclass
class Report:
    """What one process has done."""

    peak_bytes: int
    steps: int = 0
    slowest_seconds: float = 0.0
    auditor: Any = None


class Child:
    def __init__(self, target: Callable[..., Report], *arguments: Any) -> None:
        self.connection, other = _context.Pipe()
        self.process = _context.Process(target=_run, args=(target, other, *arguments), daemon=True)
        self.process.start()
        other.close()

    def end(self) -> None:
        """Ask it to end."""
        self.connection.send("end")

    def report(self) -> Report | str:
        """Return its report, or what went wrong."""
        try:
            found = self.connection.recv() if self.connection.poll(PATIENCE_SECONDS) else "it did not end"
        except EOFError:
            found = "it ended without a report"
        self.process.kill()
        self.process.join()
        return found  # type: ignore[no-any-return]


def _run(target: Callable[..., Report], connection: Connection, *arguments: Any) -> None:
    try:
        connection.send(target(connection, *arguments))
    except Exception:  # noqa: BLE001 - the process ends, and another one reports it
        connection.send(traceback.format_exc())


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def write(connection: Connection, options: JobOptions) -> Report:
    """Train until asked to end."""
    os.environ["TENSORTRIAL_STRICT"] = "1"
    last = -1

    def published(index: int) -> None:
        nonlocal last
        last = index

    train(options, published, connection.poll)
    return Report(peak_bytes(), steps=last + 1)


def read(connection: Connection, url: str, seconds: float) -> Report:
    """Read what is new, and now and then run SQL, until asked to end."""
    auditor, slowest, read_at = Auditor(url), 0.0, 0.0
    while not connection.poll():
        if auditor.open() and time.monotonic() - read_at > seconds:
            read_at = time.monotonic()
            auditor.read_new(at_most=20)
            slowest = max(slowest, time.monotonic() - read_at)
        time.sleep(0.05)
    return Report(peak_bytes(), len(auditor.audit.digests), slowest, auditor.audit)


def compact_often(connection: Connection, url: str) -> Report:
    """Compact the run again and again until asked to end."""
    times = 0
    while not connection.poll():
        try:
            done = compact(url, delete_older_than=2)
        except (RunNotFound, MissingCollectionFiles):
            time.sleep(0.1)
            continue
        if done.damaged:
            raise AssertionError(f"compaction found damaged files: {done.damaged}")
        times += 1
        time.sleep(1)
    return Report(peak_bytes(), times)


def read_all(connection: Connection, url: str) -> Report:
    """Read the whole run, in a new process."""
    del connection
    auditor = Auditor(url)
    auditor.open()
    auditor.read_all()
    return Report(peak_bytes(), auditor=auditor.audit)


def soak(url: str, writers: int, readers: int, seconds: float, random: Random) -> int:
    """Run all processes for so long, and return the exit status."""
    digits()  # read once for all processes
    codec = random.choice(["none", "none", "zstd"])
    jobs = []
    for rank in range(writers):
        hook = {"flush_seconds": random.choice([0.5, 2.0, 10.0]), "codec": codec}
        every = random.choice([5, 10, 20])
        jobs.append(Child(write, JobOptions(url, rank, writers, flush_every=every, pause_seconds=0.5, hook=hook)))
    others = [Child(read, url, 10.0) for _ in range(readers)]
    compactor = Child(compact_often, url)
    time.sleep(seconds)
    written = ended(jobs)
    found = ended([*others, compactor])
    (whole,) = [Child(read_all, url).report()]
    failed = [each for each in [*written, *found, whole] if isinstance(each, str)]
    if failed:
        print("\n".join(failed))
        return 1
    return summarize(written, found[:-1], found[-1], whole)


def ended(children: list[Child]) -> list[Any]:
    """Ask processes to end, and return their reports."""
    for child in children:
        child.end()
    return [child.report() for child in children]


def summarize(written: list[Report], readers: list[Report], compactor: Report, whole: Report) -> int:
    """Print the report of all processes. Return the exit status."""
    audit = whole.auditor
    lost = broken_promises({(0, rank): report.steps - 1 for rank, report in enumerate(written)}, audit)
    wrong = [*audit.problems]
    for reader in readers:
        wrong += reader.auditor.problems + differences(reader.auditor.digests, audit)
    steps = sum(report.steps for report in written)
    megabytes = [max(report.peak_bytes for report in each) / 1e6 for each in (written, readers, [compactor])]
    slowest = max(reader.slowest_seconds for reader in readers)
    print(
        f"{len(written)} writers: {steps} steps, {audit.rows} rows written; {len(lost)} lost some, {len(wrong)} wrong"
    )
    print(f"{len(readers)} readers: {sum(reader.steps for reader in readers)} steps; slowest read {slowest:.1f} s")
    print(f"{compactor.steps} compactions")
    print("peak memory: {:.0f} MB a writer, {:.0f} MB a reader, {:.0f} MB compacting".format(*megabytes))
    print("\n".join([*lost, *wrong][:20]))
    return 1 if lost or wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--writers", type=int, default=64)
    parser.add_argument("--readers", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tensortrial-soak-"))
    try:
        return soak(
            str(folder / "run"), arguments.writers, arguments.readers, arguments.seconds, Random(arguments.seed)
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
