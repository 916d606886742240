"""One bad file of a run: it is named, and blocks neither the rest of its run nor the other runs."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tensortrial
from support.limits import keep_index_files
from support.runs import Job, forge_file
from tensortrial.errors import (
    CorruptFile,
    MissingIndexFile,
    QueryError,
    RunNotFound,
    SnapshotNotFound,
    TensorTrialError,
)
from tensortrial.exports.source import value_rows
from tensortrial.format.chunk_reader import read_values
from tensortrial.format.index_reader import IndexRows
from tensortrial.format.schema import CollectionInfo, EndInfo, RunInfo, WorkerInfo
from tensortrial.maintenance.compaction import compact
from tensortrial.read.counting_rows import ValueLocation, index_rows, value_locations
from tensortrial.storage.open import open_storage

INDEX = "index/worker=worker_0/step=000000000000"


def write_run(folder: Path) -> Path:
    with Job(folder, flush_seconds=0) as job:
        for step in range(3):
            job.publish({"loss": float(step), "w": np.full(3, float(step))})
    return folder


def text_of(changes: dict[str, Any]) -> Callable[[str], str]:
    return lambda text: json.dumps({**json.loads(text), **changes})


NESTED = "[" * 5000 + "]" * 5000
DOCUMENTS: dict[str, Callable[[str], str]] = {
    "empty": lambda _: "",
    "a list": lambda _: "[]",
    "null": lambda _: "null",
    "cut off": lambda text: text[: len(text) // 2],
    "of other bytes": lambda _: "\x00\x01",
    "nested in a key": lambda text: text.rstrip()[:-1] + f', "x": {NESTED}}}',
    "nested without end": lambda _: '{"a":' * 5000,
    "with NaN": lambda text: text.rstrip()[:-1] + ', "x": NaN}',
    "with Infinity": lambda text: text.rstrip()[:-1] + ', "x": -Infinity}',
    "with a number beyond all": lambda text: text.rstrip()[:-1] + ', "x": 1e999}',
    "with 5000 digits": lambda text: text.rstrip()[:-1] + f', "x": {"9" * 5000}}}',
    "with a key twice": lambda text: text.rstrip()[:-1] + ', "x": 1, "x": 2}',
    "with half a character": lambda text: text.rstrip()[:-1] + ', "x": "\\ud800"}',
}
RUN = {
    "format as a text": text_of({"format": "1"}),
    "format as true": text_of({"format": True}),
    "num_workers as a text": text_of({"num_workers": "2"}),
    "num_workers of none": text_of({"num_workers": 0}),
    "num_workers beyond all": text_of({"num_workers": 10**30}),
    "started_at as a number": text_of({"started_at": 5}),
    "started_at no time": text_of({"started_at": "yesterday"}),
    "started_at before UTC": text_of({"started_at": "0001-01-01T00:00:00+14:00"}),
    "versions as a list": text_of({"versions": [1]}),
    "metadata as a text": text_of({"metadata": "x"}),
    "without started_at": lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != "started_at"}),
}
CLAIM = {
    "worker as a number": text_of({"worker": 5}),
    "of an unknown worker": text_of({"worker": "x"}),
    "of a worker with control characters": text_of({"worker": "\u202e\x1b[2J"}),
    "of another worker": text_of({"worker": "worker_0"}),
    "num_workers as a text": text_of({"num_workers": "2"}),
    "num_workers beyond all": text_of({"num_workers": 1 << 40}),
    "started_at as null": text_of({"started_at": None}),
    "collections of numbers": text_of({"collections": [5]}),
    "collections without names": text_of({"collections": [{}]}),
    "a collection whose name is a number": text_of({"collections": [{"name": 5}]}),
    "a collection with a number for names": text_of({"collections": [{"name": "a", "tensor_names": 5}]}),
    "session as a fraction": text_of({"session": 0.5}),
    "a negative step": text_of({"first_global_step": -1}),
    "modes of texts": text_of({"first_mode_steps": {"TRAIN": "x"}}),
}


@pytest.fixture(scope="module")
def good_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "good")


@pytest.fixture
def runs(tmp_path: Path, good_run: Path) -> Path:
    """A folder of a good run and of one to damage, called `bad`."""
    for name in ("good", "bad"):
        shutil.copytree(good_run, tmp_path / name)
    return tmp_path


def change(file: Path, damage: Callable[[str], str]) -> None:
    document = json.loads(file.read_text())
    document.pop("checksum", None)  # which would tell of every damage
    file.write_text(damage(json.dumps(document)))


def answers(runs: tensortrial.Runs) -> list[Any]:
    return runs.sql("select run, count(*) from tensors group by run order by run").fetchall()


def read_all(run: Path) -> None:
    """Read a run, which may refuse in words of this project."""
    with suppress(TensorTrialError), tensortrial.create_trial(run) as trial:
        trial.steps()
        trial.sql("select * from tensors").fetchall()
        trial.values(trial.tensor_names())


def test_a_bad_run_json_is_named_and_blocks_no_other_run(runs: Path) -> None:
    for name, damage in {**DOCUMENTS, **RUN}.items():
        shutil.copytree(runs / "good", runs / name)
        change(runs / name / "run.json", damage)
        with pytest.raises(TensorTrialError, match=r"run\.json"):
            tensortrial.create_trial(runs / name)
    with tensortrial.open_runs(runs) as opened:
        assert answers(opened) == [("bad", 6), ("good", 6)]
        assert sorted(Path(path).name for path in opened.damaged) == sorted([*DOCUMENTS, *RUN])
        assert all("run.json" in str(error) for error in opened.damaged.values())


@pytest.mark.parametrize("damage", [*DOCUMENTS.values(), *CLAIM.values()], ids=[*DOCUMENTS, *CLAIM])
def test_a_bad_claim_is_named_and_blocks_no_other_worker(runs: Path, damage: Callable[[str], str]) -> None:
    claim = runs / "bad" / "collections" / "worker_1.json"
    shutil.copy(runs / "bad" / "collections" / "worker_0.json", claim)
    change(claim, text_of({"worker": "worker_1"}))
    change(claim, damage)
    with tensortrial.create_trial(runs / "bad") as trial:
        assert list(trial.damaged) == ["collections/worker_1.json"]
        assert trial.steps() == [0, 1, 2]
        assert trial.collections() == {}
    with tensortrial.open_runs(runs) as opened:
        assert answers(opened) == [("bad", 6), ("good", 6)]


@pytest.mark.parametrize(
    "damage",
    [
        {"include_regex": ["("]},
        {"save_config": {"TRAIN": {"save_interval": "often"}}},
        {"reduction_config": {"reductions": ["minimum"]}},
        {"reduction_config": {"of_a_later_release": True}},
    ],
    ids=["regex", "save config", "unknown statistic", "unknown key"],
)
def test_a_bad_collection_of_a_claim_is_named_and_hides_no_other(runs: Path, damage: dict[str, Any]) -> None:
    good, bad = {"name": "good"}, {"name": "bad", **damage}
    change(runs / "bad" / "collections" / "worker_0.json", text_of({"collections": [bad, good]}))
    with tensortrial.create_trial(runs / "bad") as trial:
        assert list(trial.collections()) == ["good"]
        assert "collection 'bad'" in str(trial.damaged["collections/worker_0.json"])
        assert trial.steps() == [0, 1, 2]


def test_a_copy_of_a_claim_is_named_and_doubles_nothing(runs: Path) -> None:
    shutil.copy(runs / "bad" / "collections" / "worker_0.json", runs / "bad" / "collections" / "a copy.json")
    with tensortrial.create_trial(runs / "bad") as trial:
        assert list(trial.damaged) == ["collections/a copy.json"]
        assert trial.tensor("loss").value(2) == 2.0
        assert list(trial.values(["loss"])["loss"]) == [0, 1, 2]
    with tensortrial.open_runs(runs) as opened:
        assert answers(opened) == [("bad", 6), ("good", 6)]


ENDS = {
    "without a zone": text_of({"ended_at": "2026-01-01T00:00:00"}),
    "after all times": text_of({"ended_at": "9999-12-31T23:59:59-14:00"}),
    "of a number": text_of({"ended_at": 7}),
    "of a list": text_of({"ended_at": []}),
    "of another worker": text_of({"worker": "worker_7"}),
    "of a session as a text": text_of({"session": "x"}),
}


def test_a_bad_end_blocks_nothing(runs: Path) -> None:
    for name, damage in {**DOCUMENTS, **ENDS}.items():
        shutil.copytree(runs / "good", runs / name)
        change(runs / name / "end" / "worker_0.json", damage)
    with tensortrial.create_trial(runs / "cut off") as trial:
        assert trial.steps() == [0, 1, 2]
    with tensortrial.open_runs(runs) as opened:
        assert len(answers(opened)) == len(opened) == 2 + len(DOCUMENTS) + len(ENDS)
        # A time without a zone is one of this machine's.
        assert opened.sql("select count(ended_at) from runs").fetchall() == [(3,)]


def foreign(file: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), file)


def with_another_type(file: Path) -> None:
    table = pq.read_table(file)
    column = table.column_names.index("global_step")
    wrong = table.set_column(column, "global_step", table["global_step"].cast(pa.string()))
    forge_file(file.parents[3], file, wrong.replace_schema_metadata(pq.read_metadata(file).metadata))


def without_a_column(file: Path) -> None:
    table = pq.ParquetFile(file).read().drop_columns(["digest"])
    forge_file(file.parents[3], file, table.replace_schema_metadata(pq.read_metadata(file).metadata))


def a_wrong_length(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[:-8] + (len(data) * 2).to_bytes(4, "little") + b"PAR1")


def a_shorter_length(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[:-8] + (64).to_bytes(4, "little") + b"PAR1")


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


FILES: dict[str, Callable[[Path], object]] = {
    "an empty file": lambda file: file.write_bytes(b""),
    "half a file": lambda file: file.write_bytes(file.read_bytes()[:2000]),
    "of somebody else": foreign,
    "of another type": with_another_type,
    "without a column": without_a_column,
    "a footer of a wrong length": a_wrong_length,
    "a footer of a shorter length": a_shorter_length,
}


@pytest.mark.parametrize("damage", FILES.values(), ids=FILES)
def test_a_bad_index_file_is_named_and_the_rest_is_read(runs: Path, damage: Callable[[Path], object]) -> None:
    damage(runs / "bad" / INDEX / "00000001.parquet")
    with tensortrial.create_trial(runs / "bad") as trial:
        assert trial.sql("select count(*) from tensors").fetchall() == [(4,)]
        assert list(trial.damaged) == [f"{INDEX}/00000001.parquet"]
        assert isinstance(trial.damaged[f"{INDEX}/00000001.parquet"], CorruptFile)
        assert trial.tensor("loss").value(2) == 2.0
    with tensortrial.open_runs(runs) as opened:
        assert answers(opened) == [("bad", 4), ("good", 6)]
        assert [path.rpartition("/")[2] for path in opened.damaged] == ["00000001.parquet"]


def test_a_copy_of_an_index_file_under_another_name_is_named_and_doubles_nothing(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    copy = run / INDEX / "copy.parquet"
    original = pq.ParquetFile(run / INDEX / "00000000.parquet")
    forge_file(run, copy, original.read().replace_schema_metadata(original.metadata.metadata))
    with tensortrial.create_trial(run) as trial:
        assert trial.sql("select count(*) from tensors").fetchall() == [(6,)]
        assert "named after its flushes" in str(trial.damaged[f"{INDEX}/copy.parquet"])
        with pytest.raises(SnapshotNotFound):
            tensortrial.create_trial(run, snapshot="0123456789abcdef")
    for _ in range(2):
        assert list(compact(run, delete_older_than=0).damaged) == [f"{INDEX}/copy.parquet"]
    assert tensortrial.create_trial(run).tensor("loss").values() == {0: 0.0, 1: 1.0, 2: 2.0}


@pytest.mark.parametrize("name", ["run.json", "collections/worker_0.json", "end/worker_0.json"])
def test_a_folder_in_place_of_a_file_blocks_no_other_run(runs: Path, name: str) -> None:
    a_folder(runs / "bad" / name)
    read_all(runs / "bad")
    with tensortrial.open_runs(runs) as opened:
        assert ("good", 6) in answers(opened)


@pytest.mark.parametrize("folder", ["collections", "end", "index", "tensors"])
def test_a_file_in_place_of_a_folder_blocks_no_other_run(runs: Path, folder: str) -> None:
    shutil.rmtree(runs / "bad" / folder)
    (runs / "bad" / folder).write_text("x")
    read_all(runs / "bad")
    with tensortrial.open_runs(runs) as opened:
        assert ("good", 6) in answers(opened)


def test_unknown_keys_are_ignored(runs: Path) -> None:
    for name in ("run.json", "collections/worker_0.json", "end/worker_0.json"):
        change(runs / "bad" / name, text_of({"of a later release": {"x": [1, None]}}))
    with tensortrial.create_trial(runs / "bad") as trial:
        assert trial.damaged == {}
        assert trial.loaded_all_steps


def test_documents_that_were_written_are_read_back() -> None:
    run = RunInfo(
        "2026-01-01T00:00:00+00:00", "test", 2, versions={"a": "1"}, metadata={"lr": 0.1, "x": [None, {}]}, id="a"
    )
    assert RunInfo.from_bytes(run.to_bytes(), "run") == run
    worker = WorkerInfo("gpu:0", 2, run.started_at, [{"name": "a", "other": 1}], ["a"], 1, 5, {"TRAIN": 3})
    assert WorkerInfo.from_bytes(worker.to_bytes(), "collections/gpu%3A0.json") == worker
    assert CollectionInfo("a").save_histogram is None
    assert EndInfo(run.started_at).failure is None


def write_two_workers(folder: Path) -> Path:
    jobs = [Job(folder, f"worker_{rank}", 2, flush_seconds=3600) for rank in range(2)]
    for step in range(4):
        for rank, job in enumerate(jobs):
            job.publish({"w": np.full(3, 10.0 * rank + step)}, statistics=("mean",))
    for job in jobs:
        job.close()
    return folder


ONE_INDEX_FILE = f"{INDEX}/00000001.parquet"
DAMAGED: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a damaged index file": (ONE_INDEX_FILE, lambda file: file.write_bytes(b"x")),
    "a missing index file": (ONE_INDEX_FILE, Path.unlink),
    "a damaged claim": ("collections/worker_0.json", lambda file: file.write_bytes(b"x")),
}
NAMES_ANOTHER_WORKER = {
    "no known one": text_of({"worker": "x"}),
    "the other one": text_of({"worker": "worker_1"}),
    "control characters": text_of({"worker": "\u202e\x1b[2J"}),
}


@pytest.mark.parametrize(("path", "damage"), DAMAGED.values(), ids=DAMAGED)
def test_no_worker_stands_in_for_one_whose_file_is_damaged(
    tmp_path: Path, path: str, damage: Callable[[Path], object]
) -> None:
    damage(write_two_workers(tmp_path) / path)
    check_that_worker_1_does_not_stand_in(tmp_path, path)


@pytest.mark.parametrize("missing", ["collections", "index"])
def test_a_worker_whose_claim_or_index_was_not_copied_with_the_rest_is_named_as_lost(
    tmp_path: Path, missing: str
) -> None:
    write_two_workers(tmp_path)
    for path in (tmp_path / missing).glob("*worker_0*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with tensortrial.create_trial(tmp_path) as trial:
        assert trial.loaded_all_steps
        [lost] = trial.damaged
        assert lost.startswith(missing)
        for read in (trial.tensor("w").values, partial(trial.tensor("w").value, 1)):
            with pytest.raises(CorruptFile, match=re.escape(lost)):
                read(worker="worker_0")
    check_that_worker_1_does_not_stand_in(tmp_path, lost)


@pytest.mark.parametrize("damage", NAMES_ANOTHER_WORKER.values(), ids=NAMES_ANOTHER_WORKER)
def test_no_worker_stands_in_for_one_whose_claim_names_another(tmp_path: Path, damage: Callable[[str], str]) -> None:
    claim = "collections/worker_0.json"
    change(write_two_workers(tmp_path) / claim, damage)
    with tensortrial.create_trial(tmp_path) as trial:
        assert list(trial.damaged) == [claim]
    check_that_worker_1_does_not_stand_in(tmp_path, claim)


def test_swapped_claims_are_both_damaged(tmp_path: Path) -> None:
    folder = write_two_workers(tmp_path) / "collections"
    first, second = (folder / f"worker_{rank}.json" for rank in range(2))
    texts = first.read_text(), second.read_text()
    second.write_text(texts[0])
    first.write_text(texts[1])
    with tensortrial.create_trial(tmp_path) as trial:
        assert sorted(trial.damaged) == ["collections/worker_0.json", "collections/worker_1.json"]


def test_a_claim_that_is_written_again_is_not_damaged_any_more(tmp_path: Path) -> None:
    claim = write_two_workers(tmp_path) / "collections" / "worker_0.json"
    text = claim.read_text()
    change(claim, text_of({"worker": "worker_1"}))
    with tensortrial.create_trial(tmp_path) as trial:
        assert list(trial.damaged) == ["collections/worker_0.json"]
        claim.write_text(text)
        trial.refresh()
        assert trial.tensor("w").value(1).tolist() == [1.0] * 3
        assert trial.damaged == {}


def check_that_worker_1_does_not_stand_in(run: Path, path: str) -> None:
    with tensortrial.create_trial(run) as trial:
        tensor = trial.tensor("w")
        for question in (
            lambda: trial.values(["w"]),
            lambda: trial.values(["w"], [1]),
            lambda: tensor.values(),
            lambda: tensor.value(1),
            lambda: tensor.shapes(),
            lambda: tensor.shape(1),
            lambda: tensor.reduction_value(1, "mean"),
            lambda: tensor.reduction_values(1),
        ):
            with pytest.raises(CorruptFile, match=f"^{path}: .*; pass worker='worker_1' to read"):
                question()
        assert tensor.value(1, worker="worker_1").tolist() == [11.0] * 3
        assert [value[0] for value in tensor.values(worker="worker_1").values()] == [10, 11, 12, 13]


def test_steps_that_a_damaged_file_cannot_hold_are_read(tmp_path: Path) -> None:
    (write_two_workers(tmp_path) / ONE_INDEX_FILE).write_bytes(b"x")
    with tensortrial.create_trial(tmp_path) as trial:
        assert [trial.tensor("w").value(step)[0] for step in (0, 2, 3)] == [0, 2, 3]
        assert list(trial.values(["w"], [0, 2])["w"]) == [0, 2]


def test_a_damaged_file_of_a_later_worker_changes_nothing(tmp_path: Path) -> None:
    (write_two_workers(tmp_path) / ONE_INDEX_FILE.replace("worker_0", "worker_1")).write_bytes(b"x")
    with tensortrial.create_trial(tmp_path) as trial:
        assert [value[0] for value in trial.tensor("w").values().values()] == [0, 1, 2, 3]


FORGED = {
    "more parts than rows": {"parts": (1 << 31) - 1},
    "no part": {"parts": 0},
    "a negative row": {"row": -1},
    "a row after the last": {"row": 1 << 30},
    "a negative row group": {"row_group": -1},
    "a row group after the last": {"row_group": 1 << 30},
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_forged_location_of_a_value_is_refused(tmp_path: Path, forged: dict[str, int]) -> None:
    with Job(tmp_path, codec="zstd") as job:
        job.step({"w": np.arange(6.0)})
    storage = open_storage(tmp_path)
    (path,) = (str(file.relative_to(tmp_path)) for file in tmp_path.glob("index/*/*/*.parquet"))
    (row,) = IndexRows(storage).read([path])
    (rows,) = index_rows(storage, path, ValueLocation._fields)
    (location,) = value_locations(path, rows)
    with pytest.raises(CorruptFile, match=str(row.chunk)):
        list(value_rows(storage, location.chunk, [location._replace(**forged)]))
    if forged.get("parts") != 0:  # which is written nowhere, and read as one
        with pytest.raises(CorruptFile, match=str(row.chunk)):
            read_values(storage, [row._replace(**forged)])


def test_sql_reads_index_files_that_have_columns_in_another_order_and_more_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_index_files(monkeypatch)
    with Job(tmp_path, flush_seconds=3600) as job:
        for step in range(4):
            job.publish({"w": float(step), "v": np.full(3, float(step))})
    query = "select * from tensors order by global_step, name"
    expected = tensortrial.create_trial(tmp_path).sql(query).fetchall()
    for file in sorted(tmp_path.glob("index/*/*/*.parquet"))[1:3]:
        table = pq.read_table(file, partitioning=None)
        more = table.append_column("of a later release", pa.array([1] * len(table)))
        forge_file(tmp_path, file, more.select(more.column_names[::-1]))
    trial = tensortrial.create_trial(tmp_path)
    assert trial.sql(query).fetchall() == expected
    assert not trial.damaged


def test_a_folder_in_place_of_an_index_file_is_named_as_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keep_index_files(monkeypatch)
    folder = write_run(tmp_path / "run")
    path = f"{INDEX}/00000001.parquet"
    (folder / path).unlink()
    (folder / path).mkdir()
    trial = tensortrial.create_trial(folder)
    assert trial.steps() == [0, 2]
    assert trial.sql("select count(*) from tensors").fetchall() == [(4,)]
    assert "it is a folder, and not a file" in str(trial.damaged[path])
    assert isinstance(trial.damaged[path], CorruptFile)
    assert [path in record.getMessage() for record in caplog.records].count(True) == 1
    assert list(tensortrial.open_runs(tmp_path).damaged) == [str(folder / path)]
    exported = tensortrial.export(folder, f"csv:{tmp_path / 'out'}", progress=False)
    assert str(folder / path) in exported.damaged
    assert path in tensortrial.compact(folder).damaged
    assert (folder / path).is_dir()


def overwrite(file: Path, begin: int, end: int) -> None:
    """Damage a file in place, from one byte to before another."""
    data = bytearray(file.read_bytes())
    data[begin:end] = bytes(len(data[begin:end]))
    with file.open("r+b") as opened:
        opened.write(data)


LATER_DAMAGE: dict[str, Callable[[Path], object]] = {
    "pages": lambda file: overwrite(file, 4, 400),
    "length of the footer": lambda file: overwrite(file, file.stat().st_size - 8, file.stat().st_size - 4),
    "end": lambda file: os.truncate(file, file.stat().st_size - 40),
    "all": lambda file: os.truncate(file, 0),
}


@pytest.mark.parametrize("damage", LATER_DAMAGE.values(), ids=LATER_DAMAGE)
def test_an_index_file_that_is_damaged_after_a_query_is_named_and_left_out_from_then_on(
    runs: Path, damage: Callable[[Path], object]
) -> None:
    opened = tensortrial.open_runs(runs)
    trial = tensortrial.create_trial(runs / "bad")
    query = "select name, global_step, scalar from tensors order by all"
    before = trial.sql(query).fetchall()
    answers(opened)
    damage(runs / "bad" / INDEX / "00000001.parquet")
    for ask in (lambda: trial.sql(query).fetchall(), lambda: opened.sql("from tensors").fetchall()):
        with pytest.raises(CorruptFile, match=re.escape(f"{INDEX}/00000001.parquet")):
            ask()
    assert trial.sql(query).fetchall() == [row for row in before if row[1] != 1]
    assert answers(opened) == [("bad", 4), ("good", 6)]
    assert list(trial.damaged) == [f"{INDEX}/00000001.parquet"]
    assert list(opened.damaged) == [f"{runs}/bad/{INDEX}/00000001.parquet"]


def test_an_index_file_that_is_deleted_after_a_query_is_named_and_left_out_from_then_on(runs: Path) -> None:
    trial = tensortrial.create_trial(runs / "bad")
    assert trial.sql("select count(*) from tensors").fetchall() == [(6,)]
    (runs / "bad" / INDEX / "00000001.parquet").unlink()
    with pytest.raises(QueryError, match=re.escape(f"{INDEX}/00000001.parquet")):
        trial.sql("select sum(scalar) from tensors").fetchall()
    assert trial.sql("select sum(scalar) from tensors").fetchall() == [(2.0,)]
    assert list(trial.damaged) == [f"{INDEX}/00000001.parquet"]


@pytest.mark.parametrize("view", ["tensors", "tensor_values"])
def test_a_run_that_is_deleted_after_a_query_is_not_found(runs: Path, view: str) -> None:
    trial = tensortrial.create_trial(runs / "bad")
    opened = tensortrial.open_runs(runs)
    for each in (trial, opened):
        assert each.sql(f"select count(*) from {view} where name = 'w'").fetchall()
    shutil.rmtree(runs / "bad")
    for ask in (trial, trial, opened, opened):
        with pytest.raises(
            RunNotFound, match=r"bad: the run was deleted, .*; of several open runs, refresh\(\) leaves"
        ):
            ask.sql(f"select count(global_step) from {view}").fetchall()
    opened.refresh()
    assert opened.sql(f"select distinct run from {view}").fetchall() == [("good",)]


def test_a_query_that_fails_by_itself_leaves_the_files_as_they_are(runs: Path) -> None:
    trial = tensortrial.create_trial(runs / "good")
    for query in ("select cast(name as int) from tensors", "select error('tensortrial://0/index/x') from tensors"):
        with pytest.raises(QueryError):
            trial.sql(query).fetchall()
    assert trial.sql("select count(*) from tensors").fetchall() == [(6,)]
    assert trial.damaged == {}


@pytest.mark.parametrize("damage", [*LATER_DAMAGE.values(), Path.unlink], ids=[*LATER_DAMAGE, "deleted"])
@pytest.mark.parametrize("is_queried", [True, False], ids=["queried", "just opened"])
def test_no_earlier_row_stands_in_for_one_in_a_file_that_cannot_be_read(
    tmp_path: Path, is_queried: bool, damage: Callable[[Path], object]
) -> None:
    with Job(tmp_path, flush_seconds=3600) as job:
        steps = [job.step({"loss": 1.0, "other": 1.0}) for _ in range(3)]
        job.flush()
        job.put(steps[1], {"loss": 2.0}, closes=True)
        job.flush()
        job.step({"loss": 3.0})
    with tensortrial.create_trial(tmp_path) as trial:
        query = "select name, global_step, value from scalars order by all"
        if is_queried:
            assert ("loss", 1, 2.0) in trial.sql(query).fetchall()
        damage(tmp_path / INDEX / "00000001.parquet")
        with suppress(TensorTrialError):
            trial.sql(query).fetchall()
        assert trial.sql(query).fetchall() == [
            *(("loss", step, value) for step, value in [(0, 1.0), (2, 1.0), (3, 3.0)]),
            *(("other", step, 1.0) for step in range(3)),
        ]
        assert list(trial.damaged) == [f"{INDEX}/00000001.parquet"]
        with pytest.raises((CorruptFile, MissingIndexFile), match="00000001"):
            trial.tensor("loss").value(1)
        assert trial.tensor("loss").value(2) == 1.0


def test_a_deleted_index_file_is_the_same_error_for_values_and_for_sql(tmp_path: Path) -> None:
    with Job(tmp_path, flush_seconds=3600) as job:
        for number in range(3):
            job.publish({"loss": float(number)})
        trial, path = tensortrial.create_trial(tmp_path), f"{INDEX}/00000001.parquet"
        (tmp_path / path).unlink()
        for read in (trial.tensor("loss").value, lambda step: trial.values(["loss"], [step])):
            with pytest.raises(MissingIndexFile, match=re.escape(f"{path}: it is missing")) as caught:
                read(1)
        assert trial.tensor("loss").value(2) == 2.0
        assert trial.sql("select global_step from scalars order by 1").fetchall() == [(0,), (2,)]
        assert repr(trial.damaged[path]) == repr(caught.value)
