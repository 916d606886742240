"""Seals of Parquet files and checksums of JSON documents: every flipped bit is noticed."""

import json
from contextlib import suppress
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortrial.errors import CorruptFile
from tensortrial.format.checksum import (
    BLOCK_BYTES,
    BlockSums,
    block_sums,
    check_document,
    check_file,
    document_bytes,
    read_seal,
    seal_needs,
    sealed,
)
from tensortrial.format.documents import read_object

PATH = "index/worker=worker_0/step=000000000000/00000000.parquet"


def parquet(rows: int) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"x": list(range(rows))})
    with pq.ParquetWriter(sink, table.schema, use_dictionary=False, compression="none", store_schema=False) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def with_seal(data: bytes, path: str = PATH) -> bytes:
    return b"".join(sealed(path, data))


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("rows", [0, 3, 8192, 20_000])
def test_sealed_file_is_read_by_parquet_and_verified(rows: int) -> None:
    data = with_seal(parquet(rows))
    assert pq.read_table(pa.BufferReader(data))["x"].to_pylist() == list(range(rows))
    seal = check_file(PATH, data)
    assert len(seal.sums) == -(-seal.nbytes // BLOCK_BYTES) * 8
    assert seal_needs(data[-8:], len(data)) == min(len(data), len(data) - seal.nbytes)
    assert read_seal(PATH, data[seal.nbytes :], len(data)) == seal


def test_every_flipped_bit_of_a_file_is_noticed() -> None:
    data = with_seal(parquet(3))
    for bit in range(len(data) * 8):
        with pytest.raises(CorruptFile):
            check_file(PATH, flipped(data, bit))


def test_overwritten_seal_is_noticed() -> None:
    data = with_seal(parquet(3))
    seal = check_file(PATH, data)
    erased = data[: seal.nbytes] + bytes(40) + data[seal.nbytes + 40 :]
    with pytest.raises(CorruptFile, match="damaged"):
        check_file(PATH, erased)


@pytest.mark.parametrize("nbytes", [None, -5, 4, 0])
def test_file_without_a_seal_is_refused(nbytes: int | None) -> None:
    data = parquet(3)[:nbytes]
    with pytest.raises(CorruptFile, match=f"{PATH}: .*Parquet file|{PATH}: .*no file of a run"):
        check_file(PATH, data)


def test_blocks_are_verified_alone() -> None:
    data = with_seal(parquet(30_000))
    seal = check_file(PATH, data)
    blocks = [data[begin:end] for begin, end in pairwise(range(0, seal.nbytes + BLOCK_BYTES, BLOCK_BYTES))]
    assert len(blocks) == 4
    for number, block in enumerate(blocks):
        seal.check(block, number * BLOCK_BYTES)
        with pytest.raises(CorruptFile, match=f"bytes {number * BLOCK_BYTES} to "):
            seal.check(flipped(block, 100), number * BLOCK_BYTES)
        with pytest.raises(CorruptFile):
            seal.check(block, (number + 1) % 4 * BLOCK_BYTES)


@given(st.lists(st.integers(0, 3 * BLOCK_BYTES), max_size=8))
def test_sums_of_pieces_are_those_of_the_whole(lengths: list[int]) -> None:
    pieces = [bytes([number]) * length for number, length in enumerate(lengths)]
    sums = BlockSums()
    assert b"".join(sums.passing(pieces)) == b"".join(pieces)
    assert sums.finish() == block_sums(b"".join(pieces))


DOCUMENT = {"worker": "gpu:0/é", "seconds": 1e-05, "metadata": {"checksum": "0123456789abcdef"}, "x": [1, None]}


def test_every_flipped_bit_of_a_document_is_noticed_or_changes_nothing() -> None:
    data = document_bytes(DOCUMENT)
    assert check_document(data)
    assert {**DOCUMENT, "checksum": json.loads(data)["checksum"]} == json.loads(data)
    for bit in range(len(data) * 8):
        changed = flipped(data, bit)
        with suppress(ValueError):
            read = read_object(changed)
            assert {key: read[key] for key in DOCUMENT} == DOCUMENT


def test_document_without_a_checksum_is_accepted() -> None:
    assert not check_document(json.dumps(DOCUMENT).encode())
    assert not check_document(b"")
