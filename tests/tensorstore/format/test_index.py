"""The footer of an index file is read without its rows, and nothing in it is believed unseen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensortrial
from support.limits import set_limits
from support.runs import EPOCH, EVAL, TRAIN, Job
from tensortrial.errors import CorruptFile, UnknownFormat
from tensortrial.format.checksum import TAIL_BYTES, seal_needs, sealed
from tensortrial.format.index_types import IndexSummary, StepSummary, read_summary
from tensortrial.format.index_writer import write_compacted
from tensortrial.format.schema import (
    FOOTER_CHUNKS,
    FOOTER_COMPACTED,
    FOOTER_FORMAT,
    FOOTER_NAMES,
    FOOTER_PREVIOUS,
    FOOTER_STEPS,
    INDEX_SCHEMA,
)
from tensortrial.storage.open import open_storage

GOOD = {
    FOOTER_FORMAT: b"1",
    FOOTER_NAMES: b'[[["a",["c"]]]]',
    FOOTER_STEPS: b'[["TRAIN",0,0,5,0]]',
    FOOTER_CHUNKS: b"[]",
    FOOTER_PREVIOUS: b'""',
}

INDEX_FILE = "index/worker=worker_0/step=000000000000/00000000.parquet"


@pytest.fixture
def index_file(tmp_path: Path) -> Path:
    with Job(tmp_path, flush_seconds=3600) as job:
        job.step({"a": np.zeros(3), "b": 1.0}, mode=TRAIN, collections=("x", "y"))
        job.step({"a": np.zeros(3), "b": 1.0}, mode=TRAIN, collections=("x", "y"))
        job.step({"b": ({"statistics": ("min", "l2"), "histogram": True, "raw": False}, np.arange(4.0))}, mode=EVAL)
    (path,) = tmp_path.glob("index/*/*/*.parquet")
    return path


def summary_of(data: bytes) -> IndexSummary:
    return read_summary(INDEX_FILE, data, len(data))


def forged(footer: dict[bytes, bytes]) -> bytes:
    """A Parquet file with this footer, and with checksums that match."""
    return resealed(unsealed(INDEX_SCHEMA.empty_table().replace_schema_metadata(footer)))


def unsealed(table: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(table, out)
    return bytes(out.getvalue())


def resealed(data: bytes) -> bytes:
    return b"".join(sealed(INDEX_FILE, data))


def test_the_footer_says_what_the_file_holds(index_file: Path) -> None:
    summary = summary_of(index_file.read_bytes())
    micro = EPOCH // 1000
    assert summary.rows == 5
    assert summary.steps == [
        StepSummary("TRAIN", 0, 0, micro, 0),
        StepSummary("TRAIN", 1, 1, micro + 1000, 0),
        StepSummary("EVAL", 0, 2, micro + 2000, 1),
    ]
    assert summary.name_sets == [(("a", ("x", "y")), ("b", ("x", "y"))), (("b", ("default",)),)]
    assert summary.chunks == ["tensors/mode=TRAIN/step=000000000000/worker=worker_0/00000000.parquet"]


def test_a_summary_is_read_from_the_end_of_a_file(index_file: Path) -> None:
    data = index_file.read_bytes()
    needed = seal_needs(data[-8:], len(data))
    assert read_summary(INDEX_FILE, data[-needed:], len(data)) == summary_of(data)


def test_a_footer_that_is_longer_than_most_is_read(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        job.step({f"{number:0100}": float(number) for number in range(2000)})
    (path,) = tmp_path.glob("index/*/*/*.parquet")
    assert seal_needs(path.read_bytes()[-8:], path.stat().st_size) > TAIL_BYTES
    assert len(tensortrial.create_trial(tmp_path).tensor_names()) == 2000


@pytest.mark.parametrize("key", [FOOTER_FORMAT, FOOTER_COMPACTED])
def test_a_name_like_a_key_of_the_footer_is_a_name(tmp_path: Path, key: bytes) -> None:
    name = f"\x18{chr(len(key))}{key.decode()}\x18\x0299"
    with Job(tmp_path) as job:
        job.step({name: 1.0})
    assert tensortrial.create_trial(tmp_path).tensor_names() == [name]
    (index,) = tmp_path.glob("index/*/*/*.parquet")
    found = read_summary(index.relative_to(tmp_path).as_posix(), index.read_bytes(), index.stat().st_size)
    assert found.compacted_at is None


def test_sketches_are_encoded_by_what_their_numbers_have_in_common(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        job.step({"a": ({"sketch": True, "raw": False}, np.array([2.0, 0.0, 2.0])), "b": 1.0}, mode=TRAIN)
    (path,) = tmp_path.glob("index/*/*/*.parquet")
    file = pq.ParquetFile(path)
    found = file.read()["sketch"].to_pylist()
    assert found == [{"values": [0.0, 2.0], "counts": [1, 2]}, None]
    row_group = file.metadata.row_group(0)
    columns = {column.path_in_schema: column for column in map(row_group.column, range(row_group.num_columns))}
    assert "BYTE_STREAM_SPLIT" in columns["sketch.values.list.element"].encodings
    assert "DELTA_BINARY_PACKED" in columns["sketch.counts.list.element"].encodings


BAD: dict[str, dict[bytes, bytes | None]] = {
    "no format": {FOOTER_FORMAT: None},
    "a format that is no number": {FOOTER_FORMAT: b"one"},
    "no names": {FOOTER_NAMES: None},
    "no JSON": {FOOTER_NAMES: b"[[["},
    "no list": {FOOTER_NAMES: b"7"},
    "names without collections": {FOOTER_NAMES: b'[[["a"]]]'},
    "names that are nothing": {FOOTER_NAMES: b"[[null]]"},
    "steps that are no list": {FOOTER_STEPS: b'{"a": 1}'},
    "a step of three": {FOOTER_STEPS: b'[["TRAIN",0,0]]'},
    "an unknown mode": {FOOTER_STEPS: b'[["DREAM",0,0,0,0]]'},
    "a mode that is no text": {FOOTER_STEPS: b"[[[],0,0,0,0]]"},
    "a step that is no number": {FOOTER_STEPS: b'[["TRAIN","x",0,0,0]]'},
    "a step beyond 64 bits": {FOOTER_STEPS: b'[["TRAIN",0,99999999999999999999999,0,0]]'},
    "a time beyond 64 bits": {FOOTER_STEPS: b'[["TRAIN",0,0,99999999999999999999999,0]]'},
    "a negative step": {FOOTER_STEPS: b'[["TRAIN",-1,0,0,0]]'},
    "a step of infinity": {FOOTER_STEPS: b'[["TRAIN",Infinity,0,0,0]]'},
    "a name set out of range": {FOOTER_STEPS: b'[["TRAIN",0,0,0,1]]'},
    "a negative name set": {FOOTER_STEPS: b'[["TRAIN",0,0,0,-1]]'},
    "no file before": {FOOTER_PREVIOUS: None},
    "chunks that are no list": {FOOTER_CHUNKS: b"7"},
    "a chunk outside": {FOOTER_CHUNKS: b'["../../etc/passwd"]'},
    "a chunk outside tensors/": {FOOTER_CHUNKS: b'["index/x.parquet"]'},
    "brackets without end": {FOOTER_NAMES: b"[" * 200_000},
    "a name that is no text": {FOOTER_NAMES: b'[[["\\ud800",[]]]]'},
    "no text": {FOOTER_NAMES: b"\xff\xfe"},
}


@pytest.mark.parametrize("change", BAD.values(), ids=BAD)
def test_a_forged_footer_is_named(change: dict[bytes, bytes | None]) -> None:
    footer = {key: value for key, value in {**GOOD, **change}.items() if value is not None}
    with pytest.raises(CorruptFile, match=INDEX_FILE):
        summary_of(forged(footer))


def test_the_forgery_itself_is_well_made() -> None:
    assert summary_of(forged(GOOD)) == summary_of(forged({**GOOD, b"of a later release": b"?"}))


def test_a_foreign_parquet_file_is_not_an_index_file() -> None:
    foreign = unsealed(pa.table({"a": [1]}))
    with pytest.raises(CorruptFile, match="no file of a run"):
        summary_of(foreign)
    with pytest.raises(CorruptFile, match="no index footer"):
        summary_of(resealed(foreign))


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_damage_raises_corrupt_file(data: Any) -> None:
    good = unsealed(INDEX_SCHEMA.empty_table().replace_schema_metadata(GOOD))
    start = data.draw(st.integers(0, len(good) - 1))
    damage = data.draw(st.binary(max_size=20))
    bad = good[:start] + damage + good[data.draw(st.integers(start, len(good))) :]
    if data.draw(st.booleans()):
        bad = resealed(bad)
    try:
        summary = summary_of(bad)
    except (CorruptFile, UnknownFormat):
        return
    assert isinstance(summary, IndexSummary)


def test_equal_steps_share_their_names(tmp_path: Path) -> None:
    with Job(tmp_path, flush_seconds=3600) as job:
        for _ in range(500):
            job.step({f"tensor/{number}": 1.0 for number in range(50)})
    (path,) = tmp_path.glob("index/*/*/*.parquet")
    metadata = pq.read_metadata(path).metadata
    assert len(json.loads(metadata[FOOTER_NAMES])) == 1
    assert len(metadata[FOOTER_STEPS]) < 20_000


@pytest.mark.parametrize(("per_step", "steps"), [(3, 1000), (40, 300), (300, 300), (1, 1)])
def test_a_row_group_of_a_compacted_file_holds_whole_tiles_or_names_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per_step: int, steps: int
) -> None:
    set_limits(monkeypatch, rows_of_a_compacted_row_group=4096)
    step_of_row = np.repeat(np.arange(steps), per_step)
    cells = {pa.string(): "", pa.list_(pa.int64()): [], pa.list_(pa.string()): []}
    columns = {
        field.name: pa.repeat(
            pa.scalar(None if field.nullable else cells.get(field.type, 0), field.type), len(step_of_row)
        )
        for field in INDEX_SCHEMA
    }
    names = [f"w{number:03}" for number in range(per_step)] * steps
    columns |= {"global_step": pa.array(step_of_row), "name": pa.array(names)}
    table = pa.table(columns, INDEX_SCHEMA)
    sink = open_storage(tmp_path).sink("compacted")
    write_compacted(sink, table, IndexSummary(len(table), [], [], [], ""))
    sink.publish()
    file = pq.ParquetFile(tmp_path / "compacted")
    groups = [file.read_row_group(number, ["global_step", "name"]) for number in range(file.num_row_groups)]
    assert all(2048 <= len(group) <= 6144 for group in groups) or len(groups) == 1
    for group in groups:
        tiles = set(group["global_step"].to_numpy() // 128)
        assert len(tiles) == 1 or set(group["name"].to_pylist()) == set(names)
    assert sum(len(group) for group in groups) == len(table)
