"""Reads row groups from footers: no damage to one ends the process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from night.footers import STATISTICS, files_of, flip_bits, write

from support.runs import Job
from tensortrial.format.footer import footer_of, row_groups
from tensortrial.maintenance.compaction import compact


@pytest.fixture(scope="module", params=["none", "zstd"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("run"), request.param)


@pytest.mark.parametrize("compacted", [False, True])
def test_a_footer_says_what_pyarrow_says(tmp_path: Path, compacted: bool) -> None:
    with Job(tmp_path, flush_seconds=0) as job:
        for step in range(300):
            job.step({f"layer{n}.weight": np.full(3, step + n) for n in range(30)}, statistics=STATISTICS)
            job.step({"loss": 0.5}, histogram=True)
    if compacted:
        compact(tmp_path, delete_older_than=0)
    for file in tmp_path.glob("*/**/*.parquet"):
        found = row_groups(footer_of(file.read_bytes()))
        known = pq.read_metadata(file)
        assert [group.rows for group in found] == [known.row_group(n).num_rows for n in range(known.num_row_groups)]
        for number, group in enumerate(found):
            columns = [known.row_group(number).column(n) for n in range(known.num_columns)]
            assert group.ends == {
                column.path_in_schema: (column.statistics.min_raw, column.statistics.max_raw)
                for column in columns
                if column.physical_type in ("INT32", "INT64") and column.statistics and column.statistics.has_min_max
            }
            assert {"mode_step", "global_step"} <= group.ends.keys()


def test_a_flipped_bit_in_a_footer_does_not_end_the_process(run: Path) -> None:
    for path in files_of(run):
        good = (run / path).read_bytes()
        flip_bits(run, path, (len(good) - 8 - len(footer_of(good))) * 8, 80)


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
