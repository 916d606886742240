"""Every value of a chunk is a byte range: the formula is pinned against pyarrow's own reader."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensortrial.dtypes import dtype_name, from_rows, in_stored_dtype, parse_dtype, storable
from tensortrial.format.chunk_reader import ChunkFile
from tensortrial.format.chunk_writer import (
    COMPRESSED_ROW_GROUP_BYTES,
    ROW_GROUP_BYTES,
    ROW_GROUP_ROWS,
    ChunkWriter,
    ValueSpan,
)
from tensortrial.format.record import BatchBuffers, Plan, Record, Step, TensorSpec, ValueBatch
from tensortrial.format.schema import TENSORS_SCHEMA
from tensortrial.mode import ModeKeys
from tensortrial.statistics.digest import digest_header, digest_of, digest_of_array
from tensortrial.storage.base import ByteRange
from tensortrial.storage.local import LocalStorage
from tensortrial.storage.open import open_storage

PATH = "tensors/mode=TRAIN/step=000000000000/worker=w/00000000.parquet"


def write(
    folder: Path, sizes: list[int], codec: str = "none", **options: Any
) -> tuple[Path, list[bytes], list[ValueSpan]]:
    """A chunk of values of these sizes in bytes: the file, the values, and where they are said to lie."""
    sink = open_storage(folder).sink(PATH)
    writer = ChunkWriter(sink, PATH, "w", codec, **options)
    step = Step(ModeKeys.TRAIN, 3, 4)
    values, spans, digests = [], [], list[list[int]]()
    for number, size in enumerate(sizes):
        value = np.arange(number, number + size, dtype=np.int64).astype(np.uint8)
        values.append(value.tobytes())
        plan = Plan(f"n{number}", (), True)
        digests.append([])
        spec = TensorSpec(plan, "uint8", value.shape, value.nbytes)
        spans.append(writer.append(step, Record(plan, value, 0), spec, digests[-1]))
    writer.finish()
    writer.publish()
    assert digests == [[digest_of(value, digest_header("uint8", (len(value),)))] for value in values]
    return folder / PATH, values, spans


def columns_of(path: Path) -> list[list[bytes]]:
    """The values of each row group, as pyarrow reads them."""
    file = pq.ParquetFile(path)
    return [file.read_row_group(group, columns=["value"])["value"].to_pylist() for group in range(file.num_row_groups)]


def parts_of(columns: list[list[bytes]], span: ValueSpan) -> list[bytes]:
    """The parts of one value."""
    found: list[bytes] = []
    group, row = span.row_group, span.row
    while len(found) < span.parts:
        column = columns[group]
        found += column[row : row + span.parts - len(found)]
        group, row = group + 1, 0
    return found


def check(path: Path, values: list[bytes], spans: list[ValueSpan]) -> None:
    data, file = path.read_bytes(), columns_of(path)
    for value, span in zip(values, spans, strict=True):
        parts = parts_of(file, span)
        assert b"".join(parts) == value
        assert span.offsets is not None
        (offset,) = span.offsets.tolist()
        # The first part, if there are several.
        assert data[offset : offset + len(parts[0])] == parts[0]
        assert int.from_bytes(data[offset - 4 : offset], "little") == len(parts[0])
        assert offset >= 16


SIZES = {
    "none": [],
    "one byte": [1],
    "nothing": [0],
    "nothings": [0] * 300,
    "mixed": [0, 1, 3, 4, 5, 1000, 0, 70_000, 2, 65_536],
    "as large as a row group": [ROW_GROUP_BYTES - 1, ROW_GROUP_BYTES, ROW_GROUP_BYTES + 1, 1, 0],
    "many": [i % 7 for i in range(ROW_GROUP_ROWS - 1)],
    "as many as a row group": [1] * ROW_GROUP_ROWS,
    "more than a page of pyarrow's": [2] * (2 * ROW_GROUP_ROWS + 5001),
    "row groups of several": [ROW_GROUP_BYTES // 3] * 8,
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_every_value_is_the_byte_range_that_pyarrow_reads(tmp_path: Path, sizes: list[int]) -> None:
    check(*write(tmp_path, sizes))


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(0, 3000), max_size=60), part_bytes=st.integers(1, 500))
def test_values_of_several_parts(tmp_path_factory: pytest.TempPathFactory, sizes: list[int], part_bytes: int) -> None:
    path, values, spans = write(tmp_path_factory.mktemp("chunk"), sizes, part_bytes=part_bytes)
    check(path, values, spans)
    assert [span.parts for span in spans] == [max(1, -(-size // part_bytes)) for size in sizes]


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_values_are_read_through_their_row_group(tmp_path: Path, codec: str) -> None:
    path, values, spans = write(tmp_path, [0, 5, 100_000, COMPRESSED_ROW_GROUP_BYTES + 1, 7], codec, part_bytes=60_000)
    file = columns_of(path)
    for value, span in zip(values, spans, strict=True):
        assert b"".join(parts_of(file, span)) == value
        assert span.offsets is None
    assert path.stat().st_size < 200_000


def test_no_row_group_is_longer_than_it_should_be(tmp_path: Path) -> None:
    path, _, _ = write(tmp_path, [ROW_GROUP_BYTES // 3] * 8 + [0] * (ROW_GROUP_ROWS + 1))
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    assert max(group.num_rows for group in groups) <= ROW_GROUP_ROWS
    assert max(group.total_byte_size for group in groups) < ROW_GROUP_BYTES + (1 << 20)


def test_the_columns_are_those_of_the_format(tmp_path: Path) -> None:
    path, _, _ = write(tmp_path, [2, 3])
    table = pq.ParquetFile(path).read()
    assert table.schema.equals(TENSORS_SCHEMA)
    assert table.drop_columns(["value"]).to_pylist()[1] == {
        "name": "n1",
        "mode": "TRAIN",
        "mode_step": 3,
        "global_step": 4,
        "worker": "w",
        "dtype": "uint8",
        "shape": [3],
        "part": 0,
    }


def test_the_value_column_is_what_the_formula_needs(tmp_path: Path) -> None:
    """No dictionary, no levels, nothing compressed, and one data page a row group."""
    path, values, spans = write(tmp_path, SIZES["more than a page of pyarrow's"])
    metadata = pq.read_metadata(path)
    position = TENSORS_SCHEMA.get_field_index("value")
    assert metadata.schema.column(position).max_definition_level == 0
    for number in range(metadata.num_row_groups):
        column = metadata.row_group(number).column(position)
        assert column.path_in_schema == "value"
        assert (column.compression, column.has_dictionary_page) == ("UNCOMPRESSED", False)
        # docs/format.md has this formula.
        here = [row for row, span in enumerate(spans) if span.row_group == number]
        sizes = [len(values[row]) for row in here]
        start = column.data_page_offset + column.total_compressed_size - sum(4 + size for size in sizes)
        offsets = [start + sum(4 + size for size in sizes[:row]) + 4 for row in range(0, len(sizes), 1000)]
        assert offsets == [spans[row].offsets for row in here[::1000]]


DTYPES = ["float32", ">f8", "int16", "bool", "complex64", "bfloat16", "U3", "S5", "datetime64[ns]", "i4,>f8"]


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """Any shape, also of nothing, any of these dtypes, and in any order in memory."""
    shape = draw(st.lists(st.integers(0, 9), max_size=3))
    dtype = parse_dtype("bfloat16") if (name := draw(st.sampled_from(DTYPES))) == "bfloat16" else np.dtype(name)
    count = int(np.prod(shape))
    array = np.frombuffer(draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize)), dtype)
    if dtype.kind in "bU":  # not every byte is one of these
        array = np.zeros(count, dtype)
    array = array.reshape(shape) if count else np.empty(shape, dtype)
    return array.T if draw(st.booleans()) else array


@settings(max_examples=60, deadline=None)
@given(values=st.lists(arrays(), min_size=1, max_size=30), free_bytes=st.integers(12_000, 20_000))
def test_a_batch_of_values_is_the_page_that_pyarrow_reads(
    tmp_path_factory: pytest.TempPathFactory, values: list[np.ndarray[Any, Any]], free_bytes: int
) -> None:
    folder, step = tmp_path_factory.mktemp("chunk"), Step(ModeKeys.TRAIN, 3, 4)
    writer, buffers = ChunkWriter(open_storage(folder).sink(PATH), "chunk", "w"), BatchBuffers(free_bytes)
    batches: list[ValueBatch] = []
    for number, value in enumerate(values):
        kept = in_stored_dtype(value)
        spec = Plan(f"n{number}", (), True).spec(dtype_name(kept.dtype), kept.shape, kept.nbytes)
        if not batches or not batches[-1].add(spec, kept, number):
            batches.append(ValueBatch(buffers.acquire(kept.nbytes)))
            assert batches[-1].add(spec, kept, number)
    digests = list[int]()
    spans = [writer.append_batch(step, batch, digests) for batch in batches]
    writer.finish()
    assert digests == [digest_of_array(value) for value in values]
    writer.publish()
    expected = [storable(value).tobytes() for value in values]
    table = pq.ParquetFile(folder / PATH).read()
    assert table["value"].to_pylist() == expected
    assert table["shape"].to_pylist() == [list(value.shape) for value in values]
    data = (folder / PATH).read_bytes()
    offsets = [int(offset) for each in spans if each.offsets is not None for offset in each.offsets]
    assert [data[offset : offset + len(value)] for offset, value in zip(offsets, expected, strict=True)] == expected
    for value, dtype, stored in zip(values, table["dtype"].to_pylist(), expected, strict=True):
        (found,) = from_rows(np.frombuffer(stored, np.uint8)[None], dtype, value.shape)
        assert (found.shape, found.tobytes()) == (value.shape, storable(value).tobytes())


class Counted(LocalStorage):
    """A storage that counts reads."""

    reads = 0

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes | bytearray]:
        self.reads += 1
        return super().read_ranges(ranges)


def test_columns_of_a_row_group_are_read_together(tmp_path: Path) -> None:
    write(tmp_path, SIZES["mixed"])
    storage = Counted(str(tmp_path))
    file = ChunkFile(storage, PATH)
    parquet = file.parquet()
    columns = ["global_step", "part", "value"]
    file.fetch(parquet.metadata, 0, columns)
    before = storage.reads
    table = parquet.read_row_group(0, columns=columns, use_threads=False)
    assert storage.reads == before
    assert table == pq.ParquetFile(tmp_path / PATH).read_row_group(0, columns=columns)
    assert parquet.read_row_group(0, columns=["mode_step"])["mode_step"].unique().to_pylist() == [3]
    assert storage.reads > before


def test_a_chunk_is_read_without_a_thread_of_arrow(tmp_path: Path) -> None:
    """One that lets go of a buffer of Python's while Python ends aborts the process."""
    write(tmp_path, [70_000, 5], "zstd")
    program = """
import os, sys
from tensortrial.format.chunk_reader import ChunkFile
from tensortrial.storage.open import open_storage
storage, path = open_storage(sys.argv[1]), sys.argv[2]
before = len(os.listdir("/proc/self/task"))
columns = ["value", "name"]
file = ChunkFile(storage, path)
assert len(file.parquet().read_row_group(0, columns=columns, use_threads=False)) == 2
print(len(os.listdir("/proc/self/task")) - before)
"""
    command = [sys.executable, "-c", program, str(tmp_path), PATH]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "0\n"


def test_other_engines_read_it(tmp_path: Path) -> None:
    path, values, _ = write(tmp_path, SIZES["mixed"])
    assert duckdb.sql(f"select value from '{path}'").fetchall() == [(value,) for value in values]
    assert duckdb.sql(f"select name from '{path}' where name = 'n3'").fetchall() == [("n3",)]
    assert duckdb.sql(f"select shape, part from '{path}' where mode_step = 3 limit 1").fetchall() == [([0], 0)]


def test_an_aborted_chunk_leaves_nothing(tmp_path: Path) -> None:
    sink = open_storage(tmp_path).sink(PATH)
    writer = ChunkWriter(sink, "chunk", "w")
    plan = Plan("a", (), True)
    writer.append(Step(ModeKeys.TRAIN, 0, 0), Record(plan, np.zeros(9), 0), TensorSpec(plan, "float64", (9,), 72), [])
    writer.abort()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
