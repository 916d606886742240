"""What the digest of raw values costs: writing and reading with it and without, and the functions to choose from.

Times are CPU times of threads, the least of several turns, because a busy machine changes these least. The training's
thread is measured until it has recorded the last value; the writer's computes the digests. Values are read from the
page cache, all by `values()` and each by `value()`.

    python benchmarks/digest.py
    python benchmarks/digest.py --turns 9 --megabytes 256
"""

from __future__ import annotations

import argparse
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import xxhash
from common import header, line, scratch
from writing import write_run

import tensortrial
from tensortrial.format import record
from tensortrial.statistics.digest import PassingDigest, digest_of

CASES = {4_000: 200, 100_000: 40, 4 << 20: 4}
"""By the bytes of a value: how many come at each step."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=64, help="of each case")
    options = parser.parse_args()
    header("What the digest of raw values costs")
    compare_functions()
    for nbytes, per_step in CASES.items():
        steps = max(1, options.megabytes * 1_000_000 // (nbytes * per_step))
        print(f"\n{steps * per_step} values of {nbytes} bytes")
        with scratch() as folder:
            compare_writing(folder, nbytes, per_step, steps, options.turns)
            compare_reading(folder, nbytes, per_step, steps, options.turns)


def compare_functions() -> None:
    """Print what a byte takes, of 4 MB that lie in the cache of the processor or next to it."""
    data = np.random.default_rng(0).integers(0, 256, 4 << 20, np.uint8)
    words = data.view(np.uint64)
    keys = np.random.default_rng(1).integers(0, 1 << 63, len(words), np.uint64) | np.uint64(1)
    functions: dict[str, Callable[[], object]] = {
        "the digest": lambda: digest_of(data, b"uint8[4194304]"),
        "xxh3 of the whole": lambda: xxhash.xxh3_64_intdigest(data),
        "copy": lambda: data.copy(),
        "sum of words (numpy)": lambda: words.sum(),
        "sum of words by odd keys (numpy)": lambda: (words * keys).sum(),
        "crc32 (zlib)": lambda: zlib.crc32(data),
        **_of_torch(words, keys),
    }
    for name, call in functions.items():
        used = min(_used(call) for _ in range(20))
        line(name, f"{used / data.nbytes * 1e9:.3f} ns a byte")


def _of_torch(words: np.ndarray, keys: np.ndarray) -> dict[str, Callable[[], object]]:
    try:
        import torch
    except ModuleNotFoundError:
        return {}
    torch.set_num_threads(1)
    ours, theirs = torch.from_numpy(words.view(np.int64)), torch.from_numpy(keys.view(np.int64))
    return {"sum of words by odd keys (torch)": lambda: (ours * theirs).sum()}


def _used(call: Callable[[], object]) -> float:
    begun = time.thread_time()
    call()
    return time.thread_time() - begun


@contextmanager
def without_digests() -> Iterator[None]:
    """Let the writer compute none."""
    with (
        mock.patch.object(record, "passing_page", lambda page, *_: [page]),
        mock.patch.object(PassingDigest, "passing", lambda self, begin, end: [self._data[begin:end]]),
    ):
        yield


def compare_writing(folder: Path, nbytes: int, per_step: int, steps: int, turns: int) -> None:
    times: dict[bool, list[list[float]]] = {True: [], False: []}
    for turn in range(2 * turns):
        has_digest = turn % 2 == 0
        to = folder / ("with" if has_digest and turn == 0 else f"turn{turn}")
        if has_digest:
            found = write_run(to, nbytes, per_step, steps)
        else:
            with without_digests():
                found = write_run(to, nbytes, per_step, steps)
        times[has_digest].append(found)
    for column, name, aim in ((1, "the training's thread", "1.0x"), (2, "the writer's thread", "one more read")):
        ours, plain = (min(row[column] for row in times[has_digest]) for has_digest in (True, False))
        line(f"writing: {name}", _ratio(ours, plain, nbytes * per_step * steps), f"{aim}")


def compare_reading(folder: Path, nbytes: int, per_step: int, steps: int, turns: int) -> None:
    names = [f"tensor_{number}" for number in range(per_step)]
    trials = {verify: tensortrial.create_trial(folder / "with", verify=verify) for verify in (True, False)}
    ways: dict[str, Callable[[tensortrial.Trial], object]] = {
        "values()": lambda trial: trial.values(names),
        "value() each": lambda trial: [
            trial.tensor(name).value(step) for name in names for step in range(1, min(steps, 5) + 1)
        ],
    }
    for name, way in ways.items():
        count = per_step * (steps if name == "values()" else min(steps, 5))
        times: dict[bool, list[float]] = {True: [], False: []}
        for turn in range(2 * turns + 2):
            verify = turn % 2 == 0
            begun = time.thread_time()
            kept = way(trials[verify])
            used = time.thread_time() - begun
            del kept
            if turn > 1:
                times[verify].append(used)
        ours, plain = min(times[True]), min(times[False])
        line(f"reading: {name}", _ratio(ours, plain, nbytes * count), "1.15x")


def _ratio(ours: float, plain: float, nbytes: int) -> str:
    return f"{ours / plain:.2f}x, {(ours - plain) / nbytes * 1e9:+.3f} ns a byte"


if __name__ == "__main__":
    main()
