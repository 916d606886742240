"""Reads row groups from footers: no damage to one ends the process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import warm
from support.runs import Job
from tensortrial.format.footer import ColumnChunk, footer_of, row_groups
from tensortrial.maintenance.compaction import compact

STATISTICS = ("min", "max", "mean", "nan_count")

# Reads a run again and again, each time with one other bit flipped in one of its files, and says which: flips bits
# from a first to a last one, by a stride.
READER = """
import sys
from pathlib import Path

from tensortrial.errors import TensorTrialError
from tensortrial.exports.rows import index_rows, value_locations, value_rows
from tensortrial.format.index_reader import read_rows
from tensortrial.format.index_log import read_summaries
from tensortrial.format.index_reader import IndexRows
from tensortrial.storage.open import open_storage
from tensortrial.read.values import read_values

run, path, first, last, stride = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
good = (run / path).read_bytes()
index = [str(file.relative_to(run)) for file in sorted(run.glob("index/*/*/*.parquet"))]


def read():
    storage = open_storage(run)
    for file in index:
        list(read_summaries(storage, [file]))
        rows = IndexRows(storage).read([file], statistics=True)
        read_values(storage, [row for row in rows if row.has_raw])
        for chunk in {row.chunk for row in rows if row.chunk}:
            wanted = [location for location in value_locations(storage, file) if location.chunk == chunk]
            for _ in value_rows(storage, chunk, wanted):
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


@pytest.fixture(scope="module", params=["none", "zstd"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    with Job(folder, codec=request.param, flush_seconds=3600) as job:
        for step in range(3):
            weights = np.arange(12.0).reshape(3, 4) + step
            job.step({"loss": 0.5 / (step + 1), "w": ({"statistics": STATISTICS, "histogram": True}, weights)})
    return folder


def files_of(run: Path) -> Iterator[str]:
    for pattern in ("index/*/*/*.parquet", "tensors/*/*/*/*.parquet"):
        for file in sorted(run.glob(pattern)):
            yield str(file.relative_to(run))


@pytest.mark.parametrize("compacted", [False, True])
def test_a_footer_says_what_pyarrow_says(tmp_path: Path, compacted: bool) -> None:
    with Job(tmp_path, flush_seconds=0) as job:
        for step in range(300):
            job.step({f"layer{n}.weight": np.full(3, step + n) for n in range(30)}, statistics=STATISTICS)
            job.step({"loss": 0.5}, histogram=True)
    if compacted:
        compact(tmp_path, grace=0)
    for file in tmp_path.glob("*/**/*.parquet"):
        found = row_groups(footer_of(file.read_bytes()))
        known = pq.read_metadata(file)
        assert [group.rows for group in found] == [known.row_group(n).num_rows for n in range(known.num_row_groups)]
        for number, group in enumerate(found):
            columns = [known.row_group(number).column(n) for n in range(known.num_columns)]
            assert list(group.columns) == [column.path_in_schema for column in columns]
            for column, mine in zip(columns, group.columns.values(), strict=True):
                assert_same(column, mine)


def assert_same(column: Any, mine: ColumnChunk) -> None:
    statistics = column.statistics
    assert mine.entries == column.num_values
    assert mine.nulls == (statistics.null_count if statistics and statistics.has_null_count else None)
    assert (mine.least is not None) == bool(statistics and statistics.has_min_max)
    if mine.least is not None and column.physical_type in ("INT32", "INT64", "BYTE_ARRAY"):
        is_text = column.physical_type == "BYTE_ARRAY"
        ends = [end.encode() if is_text else end for end in mine.ends(str if is_text else int)]
        assert ends == [statistics.min_raw, statistics.max_raw]


def test_a_flipped_bit_in_a_footer_does_not_end_the_process(run: Path) -> None:
    for path in files_of(run):
        good = (run / path).read_bytes()
        flip_bits(run, path, (len(good) - 8 - len(footer_of(good))) * 8, 80)


@pytest.mark.slow
def test_no_flipped_bit_of_a_file_ends_the_process(run: Path) -> None:
    # All bits take half an hour; the fuzzer flips others.
    for path in files_of(run):
        flip_bits(run, path, 0, 400)


def flip_bits(run: Path, path: str, begin: int, count: int) -> None:
    """Flip about `count` bits from bit `begin` on, one after another, in a process of its own."""
    good = (run / path).read_bytes()
    stride = max(1, (len(good) * 8 - begin) // count) | 1
    arguments = [str(run), path, str(begin), str(len(good) * 8), str(stride)]
    try:
        done = warm.run(["-c", READER, *arguments], timeout=1500)
    finally:
        (run / path).write_bytes(good)
    assert done.returncode == 0, f"bit {done.stdout.split()[-1]} of {path}: {done.stderr[-2000:]}"
    assert done.stdout.endswith("done\n")


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=300))
def test_bytes_that_are_not_a_footer_are_refused(data: bytes) -> None:
    try:
        groups = row_groups(data)
    except ValueError:
        return
    assert isinstance(groups, list)


def test_structs_without_end_are_refused() -> None:
    with pytest.raises(ValueError, match="nested structs"):
        row_groups(b"\x1c" * 100_000)
    with pytest.raises(ValueError, match="nested lists"):
        row_groups(b"\x19" + b"\x19" * 100_000)
