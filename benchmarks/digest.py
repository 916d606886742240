"""The cost of verifying raw values: of their digests in writing and reading, and of `tensortrial.verify`.

Writing and reading are compared with the same code without digests; `verify` with a plain read of the same files into
one buffer. Times are CPU times, the least of several turns, because a busy machine changes these least. The training's
thread is measured until it has recorded the last value; the writer's computes the digests. All is read from the page
cache, values by `values()` and each by `value()`; from a disk or a bucket the ratios are smaller.

    python benchmarks/digest.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from unittest import mock

import numpy as np
from common import cpu_seconds, header, line, scratch
from writing import write_run

import tensortrial
from tensortrial.format import record
from tensortrial.statistics.digest import PassingDigest, digest_of

CASES = {4_000: 200, 100_000: 40, 4 << 20: 4}
"""By the bytes of a value: how many come at each step."""
TURNS = 5
BYTES = 128_000_000
"""The size of each case."""


def main() -> None:
    header("What verifying raw values costs")
    data = np.random.default_rng(0).integers(0, 256, 4 << 20, np.uint8)
    used = _least([lambda: digest_of(data, b"uint8[4194304]")], 20)[0]
    line("the digest of 4 MB", f"{used / data.nbytes * 1e9:.3f} ns a byte")
    for nbytes, per_step in CASES.items():
        steps = max(1, BYTES // (nbytes * per_step))
        print(f"\n{steps * per_step} values of {nbytes} bytes")
        with scratch() as folder:
            compare_writing(folder, nbytes, per_step, steps)
            compare_reading(folder / "with", nbytes, per_step, steps)
            compare_verifying(folder / "with", steps * per_step)


def _least(calls: list[Callable[[], object]], turns: int = TURNS) -> list[float]:
    """Return the least CPU seconds of each call, over all threads, measured in turns."""
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(turns):
        for times, call in zip(found, calls, strict=True):
            times.append(cpu_seconds(call))
    return list(map(min, found))


@contextmanager
def without_digests() -> Iterator[None]:
    """Let the writer compute none."""
    with (
        mock.patch.object(record, "passing_page", lambda page, *_: [page]),
        mock.patch.object(PassingDigest, "passing", lambda self, begin, end: [self._data[begin:end]]),
    ):
        yield


def compare_writing(folder: Path, nbytes: int, per_step: int, steps: int) -> None:
    times: dict[bool, list[list[float]]] = {True: [], False: []}
    for turn in range(2 * TURNS):
        has_digest = turn % 2 == 0
        to = folder / ("with" if turn == 0 else f"turn{turn}")
        with nullcontext() if has_digest else without_digests():
            times[has_digest].append(write_run(to, nbytes, per_step, steps))
    for column, name, aim in ((1, "the training's thread", "1.0x"), (2, "the writer's thread", "one more read")):
        ours, plain = (min(row[column] for row in times[has_digest]) for has_digest in (True, False))
        line(f"writing: {name}", _ratio(ours, plain, nbytes * per_step * steps), f"{aim}")


def compare_reading(run: Path, nbytes: int, per_step: int, steps: int) -> None:
    names, few = [f"tensor_{number}" for number in range(per_step)], min(steps, 5)
    verified, plain = (tensortrial.create_trial(run, verify=verify) for verify in (True, False))

    def each(trial: tensortrial.Trial) -> None:
        for name in names:
            for step in range(1, few + 1):
                trial.tensor(name).value(step)

    for what, read, count in (
        ("values()", lambda trial: trial.values(names), per_step * steps),
        ("value() each", each, per_step * few),
    ):
        calls = [lambda read=read: read(verified), lambda read=read: read(plain)]
        _least(calls, 1)
        line(f"reading: {what}", _ratio(*_least(calls), nbytes * count), "1.15x")


def compare_verifying(run: Path, values: int) -> None:
    report = tensortrial.verify(run)
    assert report.is_whole, report
    assert report.values == values, report
    ours, plain = _least([lambda: tensortrial.verify(run), lambda: read_files(run)])
    line("reading all files", f"{plain / report.nbytes * 1e9:.3f} ns a byte")
    line("verifying them", f"{ours / report.nbytes * 1e9:.3f} ns a byte, {ours / values * 1e6:.1f} us a value")
    line("verifying, to reading", f"{ours / plain:.2f}x")


def read_files(run: Path) -> None:
    """Read all files of a run, one after another."""
    buffer = memoryview(bytearray(1 << 20))
    for path in run.rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass


def _ratio(ours: float, plain: float, nbytes: int) -> str:
    return f"{ours / plain:.2f}x, {(ours - plain) / nbytes * 1e9:+.3f} ns a byte"


if __name__ == "__main__":
    main()
