"""Flipped bits of index and value files, read by everything that parses a file: none ends the process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import numpy as np
from night.finder import Case

from support import warm
from support.runs import Job

STATISTICS = ("min", "max", "mean", "nan_count")
BITS = 100
"""About so many are flipped in one case."""
# Reads a run again and again, each time with one other bit flipped in one of its files, and says which: flips bits
# from a first to a last one, by a stride.
READER = """
import sys
from pathlib import Path

from tensortrial.errors import TensorTrialError
from tensortrial.exports.source import value_rows
from tensortrial.read.counting_rows import ValueLocation, index_rows, value_locations
from tensortrial.format.index_reader import read_rows
from tensortrial.snapshot.index_files import read_summaries
from tensortrial.format.index_reader import IndexRows
from tensortrial.storage.open import open_storage
from tensortrial.format.chunk_reader import read_values

run, path, first, last, stride = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
good = (run / path).read_bytes()
index = [str(file.relative_to(run)) for file in sorted(run.glob("index/*/*/*.parquet"))]


def read():
    storage = open_storage(run)
    for file in index:
        list(read_summaries(storage, [file]))
        rows = IndexRows(storage).read([file], statistics=True)
        read_values(storage, [row for row in rows if row.has_raw])
        for located in index_rows(storage, file, ValueLocation._fields):
            locations = list(value_locations(file, located))
            for chunk in {location.chunk for location in locations}:
                for _ in value_rows(storage, chunk, [each for each in locations if each.chunk == chunk]):
                    pass
        read_rows(file, storage.read(file))
        for _ in index_rows(storage, file):
            pass


for bit in range(first, last, stride):
    bad = bytearray(good)
    bad[bit >> 3] ^= 1 << (bit & 7)
    (run / path).write_bytes(bad)
    print(bit, flush=True)
    try:
        read()
    except TensorTrialError:
        pass
print("done")
"""


def write(folder: Path, codec: str) -> Path:
    """Write a small run with values, statistics and histograms."""
    with Job(folder, codec=codec, flush_seconds=3600) as job:
        for step in range(3):
            weights = np.arange(12.0).reshape(3, 4) + step
            job.step({"loss": 0.5 / (step + 1), "w": ({"statistics": STATISTICS, "histogram": True}, weights)})
    return folder


def files_of(run: Path) -> Iterator[str]:
    """Return the paths of a run's index and value files."""
    for pattern in ("index/*/*/*.parquet", "tensors/*/*/*/*.parquet"):
        for file in sorted(run.glob(pattern)):
            yield str(file.relative_to(run))


def flip_bits(run: Path, path: str, begin: int, count: int) -> int:
    """Flip about `count` bits from bit `begin` on, one after another, in a process of its own. Return how many."""
    good = (run / path).read_bytes()
    stride = max(1, (len(good) * 8 - begin) // count) | 1
    arguments = [str(run), path, str(begin), str(len(good) * 8), str(stride)]
    try:
        done = warm.run(["-c", READER, *arguments], timeout=1500)
    finally:
        (run / path).write_bytes(good)
    assert done.returncode == 0, f"bit {done.stdout.split()[-1]} of {path}: {done.stderr[-2000:]}"
    assert done.stdout.endswith("done\n")
    return len(done.stdout.splitlines()) - 1


@contextmanager
def prepared(folder: Path) -> Iterator[Case]:
    runs = [write(folder / codec, codec) for codec in ("none", "zstd")]

    def case(random: Random, own: Path) -> Counter[str]:
        del own
        run = random.choice(runs)
        path = random.choice(list(files_of(run)))
        begin = random.randrange((run / path).stat().st_size * 8 // BITS)
        return Counter(bits=flip_bits(run, path, begin, BITS))

    yield case
