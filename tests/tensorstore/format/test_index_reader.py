"""The rows that are read without SQL are those that SQL finds."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensortrial
from support.internals import index_paths
from support.limits import keep_index_files, set_limits
from support.runs import EVAL, TRAIN, Job
from tensortrial.format.checksum import sealed
from tensortrial.format.index_reader import IndexRows
from tensortrial.format.index_types import SavedTensor
from tensortrial.maintenance.compaction import compact
from tensortrial.read.trial import Trial, run_reader_of
from tensortrial.statistics.definitions import STATISTICS
from tensortrial.storage.local import LocalStorage
from tensortrial.storage.open import ByteRange, open_storage

NAMES = ["a", "b/weight", "ü", ""]
LOCATION = SavedTensor._fields[:15]


def saved(trial: Trial, where: str, statistics: bool) -> list[tuple[Any, ...]]:
    """What SQL says of the rows."""
    columns = [f'"{name}"' for name in LOCATION]
    if statistics:
        columns += [f"[{', '.join(f'{name!r}' for name in STATISTICS)}]".replace("'", '"'), "histogram"]
    rows = trial.sql(f"select {', '.join(columns)} from tensors where {where}").fetchall()
    return sorted(map(_comparable, (SavedTensor(*row) for row in rows)))


def read(trial: Trial, **wanted: Any) -> list[tuple[Any, ...]]:
    paths = index_paths(trial)
    return sorted(map(_comparable, IndexRows(open_storage(trial.path)).read(paths, **wanted)))


def _comparable(row: SavedTensor) -> tuple[Any, ...]:
    """Without nan, which is not equal to itself, and in an order of its own."""
    return row.global_step, row.name, row.worker, repr(row._replace(scalar=_number(row.scalar)))


def _number(value: float | None) -> str:
    return "nan" if value is not None and math.isnan(value) else repr(value)


values = st.one_of(
    st.floats(),
    st.lists(st.floats(-1e3, 1e3), max_size=3).map(np.array),
    st.integers(0, 3).map(lambda size: np.zeros((2, size), np.int8)),
)
steps = st.lists(st.dictionaries(st.sampled_from(NAMES), values, min_size=1), min_size=1, max_size=12)


@settings(max_examples=5, deadline=None)
@given(steps, st.sampled_from([0, 1, 3]), st.booleans(), st.sampled_from([1, 3, 1 << 20]))
@pytest.mark.slow
def test_rows_are_those_that_sql_finds(
    tmp_path_factory: pytest.TempPathFactory,
    steps: Sequence[dict[str, Any]],
    flush_every: int,
    compacted: bool,
    row_group: int,
) -> None:
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patched:
        set_limits(patched, rows_of_a_row_group=row_group, rows_of_a_compacted_row_group=row_group)
        keep_index_files(patched)
        with Job(folder, flush_seconds=3600) as job:
            for number, step in enumerate(steps):
                kept = {"statistics": ("min", "l2"), "histogram": True} if number % 2 else {}
                job.step(step, EVAL if number % 3 == 2 else TRAIN, **kept)
                if flush_every and number % flush_every == 0:
                    job.flush()
        if compacted:
            compact(folder, delete_older_than=0)
    trial = tensortrial.create_trial(folder)
    for statistics in (False, True):
        assert read(trial, statistics=statistics) == saved(trial, "true", statistics)
        for step in range(len(steps) + 1):
            assert read(trial, step=step, statistics=statistics) == saved(trial, f"global_step = {step}", statistics)
        for name in NAMES:
            assert read(trial, names=[name], statistics=statistics) == saved(trial, f"name = '{name}'", statistics)
    assert read(trial, names=NAMES[:2], step=1) == saved(trial, "name in ('a', 'b/weight') and global_step = 1", False)
    for number, step in enumerate(steps):
        assert trial.tensor_names(step=number) == sorted(step)


def test_a_column_that_is_the_same_in_all_rows_is_read_bit_by_bit(tmp_path: Path) -> None:
    with Job(tmp_path, flush_seconds=3600) as job:
        for scalar in (0.0, -0.0):
            job.step({"a": scalar, "b": scalar})
    trial = tensortrial.create_trial(tmp_path)
    rows = [run_reader_of(trial).rows("a", step) for step in range(2)]
    assert [(row.worker, row.dtype, row.nbytes, str(row.scalar), row.chunk) for (row,) in rows] == [
        ("worker_0", "float64", 8, scalar, None) for scalar in ("0.0", "-0.0")
    ]


def edit_footer(run: Path, path: Path, changes: dict[bytes, bytes]) -> None:
    """Write an index file of a run again, with other metadata and the checksums of that."""
    file = pq.ParquetFile(path)
    out = pa.BufferOutputStream()
    with pq.ParquetWriter(out, file.schema_arrow, store_schema=False) as writer:
        texts = {**file.metadata.metadata, **changes}
        writer.add_key_value_metadata({key: text for key, text in texts.items() if text})
        for number in range(file.num_row_groups):
            writer.write_table(file.read_row_group(number))
    path.write_bytes(b"".join(sealed(path.relative_to(run).as_posix(), bytes(out.getvalue()))))


@pytest.fixture
def several_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose index has one compacted file and one other, each of several row groups."""
    set_limits(monkeypatch, rows_of_a_row_group=7, rows_of_a_compacted_row_group=7)
    with Job(tmp_path, flush_seconds=3600) as job:
        for step in range(10):
            job.step(dict.fromkeys(NAMES, float(step)), EVAL if step % 3 == 2 else TRAIN)
    compact(tmp_path, delete_older_than=0)
    with Job(tmp_path, flush_seconds=3600, resume=True) as job:
        for step in range(10, 15):
            job.step(dict.fromkeys(NAMES, float(step)), TRAIN)
    return tmp_path


def test_the_footer_describes_each_row_group(several_groups: Path) -> None:
    paths = sorted(several_groups.glob("index/*/*/*.parquet"))
    assert len(paths) == 2
    for path in paths:
        file = pq.ParquetFile(path)
        assert file.num_row_groups > 2
        described = json.loads(file.metadata.metadata[b"tensortrial.row_groups"])
        for number, (rows, names, steps) in enumerate(described):
            group = file.read_row_group(number, ["name", "global_step"]).to_pydict()
            assert rows == len(group["name"])
            assert names[0] <= min(group["name"])
            assert max(group["name"]) <= names[1]
            assert steps == [min(group["global_step"]), max(group["global_step"])]


def test_the_footer_names_the_columns_without_values(several_groups: Path) -> None:
    paths = [*several_groups.glob("index/*/*/*.parquet")]
    assert paths
    for path in paths:
        file = pq.ParquetFile(path)
        table = file.read()
        empty = [name for name in table.column_names if table[name].null_count == len(table)]
        assert len(empty) > 10
        assert json.loads(file.metadata.metadata[b"tensortrial.empty_columns"]) == empty


@pytest.mark.parametrize("said", ["", '["name","scalar","mean","unknown",7]'])
def test_rows_are_read_whether_or_not_the_footer_names_empty_columns(several_groups: Path, said: str) -> None:
    before = read(tensortrial.create_trial(several_groups), statistics=True)
    for path in several_groups.glob("index/*/*/*.parquet"):
        edit_footer(several_groups, path, {b"tensortrial.empty_columns": said.encode()})
    trial = tensortrial.create_trial(several_groups)
    found = read(trial, statistics=True)
    assert [row[:3] for row in found] == [row[:3] for row in before]
    assert len(trial.verify().damaged) == (2 if said else 0)
    assert said or found == before


@pytest.mark.parametrize(
    ("key", "said"),
    [
        *((b"tensortrial.empty_columns", said) for said in ("7", "[", "[[]]", "[" * 100_000)),
        *((b"tensortrial.row_groups", said) for said in ("", "[[7,null,null]]", "{}", "[", "7", "[1,2,3,4,5,6]")),
        *((b"tensortrial.row_groups", said) for said in ('[[7,["a","b"],["a","b"]]]', "[" * 100_000)),
    ],
)
def test_a_forged_footer_is_an_error_that_names_the_file(several_groups: Path, key: bytes, said: str) -> None:
    path = max(several_groups.glob("index/*/*/*.parquet"))
    edit_footer(several_groups, path, {key: said.encode()})
    trial = tensortrial.create_trial(several_groups)
    with pytest.raises(tensortrial.errors.CorruptFile, match=path.name):
        read(trial, names=["a"], step=12)
    (damage,) = trial.verify().damaged
    assert damage.path == path.relative_to(several_groups).as_posix()


@pytest.mark.parametrize(
    "changed",
    [
        lambda groups: groups[1][1].reverse(),
        lambda groups: groups[1].__setitem__(1, ["a", "a"]),
        lambda groups: groups[2][2].__setitem__(1, groups[2][2][1] - 1),
        lambda groups: groups[0][2].__setitem__(0, groups[0][2][0] + 1),
        lambda groups: groups[0].__setitem__(0, groups[0][0] + 1) or groups[1].__setitem__(0, groups[1][0] - 1),
    ],
)
@pytest.mark.parametrize("which", [min, max])
def test_verification_names_a_file_whose_description_of_row_groups_hides_rows(
    several_groups: Path, changed: Callable[[list[Any]], None], which: Callable[..., Path]
) -> None:
    assert tensortrial.verify(several_groups).is_whole
    path = which(several_groups.glob("index/*/*/*.parquet"))
    described = json.loads(pq.read_metadata(path).metadata[b"tensortrial.row_groups"])
    changed(described)
    edit_footer(several_groups, path, {b"tensortrial.row_groups": json.dumps(described).encode()})
    (damage,) = tensortrial.verify(several_groups).damaged
    assert damage.path == path.relative_to(several_groups).as_posix()
    assert "row group" in damage.reason


class CountedStorage(LocalStorage):
    """Counts the files of which something is read."""

    reads = 0

    def read_ranges(self, ranges: Sequence[ByteRange]) -> Any:
        self.reads += len({each.path for each in ranges})
        return super().read_ranges(ranges)


@pytest.mark.parametrize(
    ("limits", "cached"),
    [
        ({}, 8),
        ({"cached_row_groups": 3}, 3),
        ({"cached_footers": 2}, 2),
        ({"cached_index_bytes": 0}, 0),
    ],
    ids=str,
)
def test_no_more_than_the_limit_is_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int], cached: int
) -> None:
    set_limits(monkeypatch, rows_merged_at_close=0, **limits)
    with Job(tmp_path, flush_seconds=3600) as job:
        for number in range(8):
            job.publish({"a": float(number), "b": np.arange(3.0)}, statistics=("min",))
    paths = index_paths(tensortrial.create_trial(tmp_path))
    for statistics in (False, True):
        storage = CountedStorage(str(tmp_path))
        rows = IndexRows(storage)
        for _ in range(2):
            found = rows.read(paths, ["a"], statistics=statistics)
            assert [row.scalar for row in found] == [*range(8)]
        storage.reads = 0
        for path in paths[len(paths) - cached :]:
            rows.read([path], ["a"], statistics=statistics)
        assert storage.reads == 0
        for path in paths[: len(paths) - cached]:
            rows.read([path], ["a"], statistics=statistics)
        assert storage.reads >= len(paths) - cached
