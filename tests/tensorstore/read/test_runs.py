"""Many runs opened together: found, named, queried by SQL, and a damaged one left out."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from support.permissions import bound_by_modes
from support.runs import EVAL, TRAIN, Job, edit_document
from support.servers import ObjectStore
from tensortrial.config.collection import Collection
from tensortrial.errors import (
    ConfigurationError,
    MissingChunk,
    QueryError,
    QueryRefused,
    RunClosed,
    RunNotFound,
    StorageError,
)
from tensortrial.read.run_queries import OF_ONE_RUN
from tensortrial.rules import VanishingGradient, watch


def write(place: Any, offset: float, steps: int = 3, close: bool = True, **options: Any) -> Job:
    job = Job(place, collections=[Collection("losses", include_regex="loss")], saved=["losses"], **options)
    for step in range(steps):
        values = {"w": np.full((2, 2), offset + step), "loss": offset + step}
        job.step(values, TRAIN, statistics=("mean", "l2"), collections=("losses",))
    job.publish({"loss": 100.0}, EVAL)
    if close:
        job.close()
    return job


@pytest.fixture(params=["local", "memory", pytest.param("s3", marks=pytest.mark.s3)])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    if request.param == "local":
        return str(tmp_path / "project"), {}
    if request.param == "memory":
        return f"memory://{secrets.token_hex(6)}/project", {}
    moto: ObjectStore = request.getfixturevalue("moto_s3")
    return f"{moto.new_bucket()}/project", moto.storage_options


def test_a_folder_of_runs_wherever_it_is(project: tuple[str, dict[str, Any]]) -> None:
    url, options = project
    for number in range(3):
        write(f"{url}/lr=[0.{number}]", 10 * number, storage_options=options)
    runs = tensortrial.open_runs(url, storage_options=options)
    assert runs.names == ["lr=[0.0]", "lr=[0.1]", "lr=[0.2]"]
    assert len(runs) == 3
    assert runs.damaged == {}
    losses = runs.sql(
        "select run, avg(value) from scalars where mode = 'TRAIN' and name = 'loss' group by run order by run"
    )
    assert losses.fetchall() == [("lr=[0.0]", 1), ("lr=[0.1]", 11), ("lr=[0.2]", 21)]
    assert runs.sql("select count(*), count(distinct run) from tensors").fetchall() == [(21, 3)]
    assert runs.sql("select sum(num_tensors) from steps").fetchall() == [(21,)]
    assert runs.sql("select distinct name from collections").fetchall() == [("losses",)]
    means = runs.sql(
        "select run, max(value) from reductions where reduction = 'mean' and name = 'w' group by 1 order by 1"
    )
    assert [value for _, value in means.fetchall()] == [2, 12, 22]
    values = runs.sql(
        "select run, octet_length(value) from tensor_values where name = 'w' and mode_step = 0 order by run"
    )
    assert values.fetchall() == [(name, 32) for name in runs]
    assert runs.trial("lr=[0.1]").tensor("w").value(0)[0, 0] == 10
    for location in (f"{url}/lr=[0.1]", f"{url}/lr=[[]0.1]"):
        assert tensortrial.open_runs(location, storage_options=options).names == ["lr=[0.1]"]
    runs.close()


def test_the_runs_themselves(tmp_path: Path) -> None:
    write(tmp_path / "a", 0)
    going = write(tmp_path / "b", 1, steps=1, close=False)
    edit_document(tmp_path / "a" / "run.json", metadata={"lr": 0.1}, versions={"torch": "2"})
    runs = tensortrial.open_runs(tmp_path)
    (first, second) = runs.sql("select * from runs order by run").fetchall()
    columns = runs.sql("select * from runs").columns
    assert columns == [
        "run",
        "path",
        "started_at",
        "ended_at",
        "framework",
        "versions",
        "workers",
        "steps",
        "tensor_bytes",
        "file_bytes",
        "metadata",
    ]
    row = dict(zip(columns, first, strict=True))
    assert (row["path"], row["framework"], row["workers"], row["steps"]) == (str(tmp_path / "a"), "test", 1, 4)
    assert row["tensor_bytes"] == 3 * (32 + 8) + 8
    assert row["file_bytes"] == sum(file.stat().st_size for file in (tmp_path / "a").rglob("*") if file.is_file())
    assert row["started_at"].year == 2026
    assert row["ended_at"] > row["started_at"]
    assert json.loads(row["versions"]) == {"torch": "2"}
    assert runs.sql("select run from runs where metadata->>'lr' = '0.1'").fetchall() == [("a",)]
    # The second is still being written.
    assert dict(zip(columns, second, strict=True))["ended_at"] is None
    going.step({"loss": 7.0}, TRAIN)
    going.close()
    assert runs.sql("select count(*) from scalars where run = 'b' and value = 7").fetchall() == [(0,)]
    runs.refresh()
    assert runs.sql("select count(*) from scalars where run = 'b' and value = 7").fetchall() == [(1,)]
    assert runs.sql("select count(*) from runs where ended_at is null").fetchall() == [(0,)]


def test_a_run_whose_path_is_no_utf_8_is_read_with_the_others(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    write(tmp_path / "runs" / name, 5)
    write(tmp_path / "runs" / "good", 0)
    runs = tensortrial.open_runs(tmp_path / "runs")
    assert runs.names == ["caf\\udce9", "good"]
    assert runs.sql("select run, value from scalars where name = 'loss' and mode_step = 0").fetchall()
    values = "select run, octet_length(value) from tensor_values where name = 'w' and mode_step = 0 order by run"
    assert runs.sql(values).fetchall() == [("caf\\udce9", 32), ("good", 32)]
    assert runs.trial("caf\\udce9").tensor("w").value(0)[0, 0] == 5
    paths = runs.sql("select path from runs where run <> 'good'").fetchall()
    assert paths == [(f"{tmp_path}/runs/caf\\udce9",)]
    assert tensortrial.export(tmp_path / "runs", f"csv:{tmp_path}/csv", progress=False).rows["runs"] == 2


def test_a_folder_of_signs_of_a_pattern_is_a_folder(tmp_path: Path) -> None:
    for name in ("a[1]", "a1", "all*"):
        write(tmp_path / name / f"in {name}", 0)
    for name in ("a[1]", "all*"):
        for location in (tmp_path / name, tmp_path / name / f"in {name}"):
            assert tensortrial.open_runs(location).names == [f"in {name}"]
        assert f"in {name}" in tensortrial.open_runs(tmp_path / name / "in*").names


def test_what_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("x/a", "x/b", "y/deep/a", "c"):
        write(tmp_path / place, 0)
    (tmp_path / "x" / "notes.txt").write_text("no run")
    monkeypatch.chdir(tmp_path)
    assert tensortrial.open_runs(".").names == ["b", "c", "deep/a", "x/a"]
    assert tensortrial.open_runs("x/*").names == ["a", "b"]
    assert tensortrial.open_runs("*/a").names == ["a"]
    assert tensortrial.open_runs("[xy]").names == ["b", "deep/a", "x/a"]
    assert tensortrial.open_runs(["c", tmp_path / "x" / "b", "x/b"]).names == ["b", "c"]
    for nothing in ("x/z*", "nowhere", ["nowhere", "else"]):
        with pytest.raises(RunNotFound, match="no run here"):
            tensortrial.open_runs(nothing)
    with pytest.raises(ConfigurationError, match="empty"):
        tensortrial.open_runs([])
    with pytest.raises(ConfigurationError, match="unknown run 'z'; the nearest runs are: a, b"):
        tensortrial.open_runs("x").trial("z")
    some = tensortrial.open_runs(["c", "nowhere"])
    assert some.names == ["c"]
    assert "no run here" in str(some.damaged["nowhere"])


def test_what_is_broken_is_listed_and_left_out(tmp_path: Path) -> None:
    for name in ("good", "halved", "foreign"):
        write(tmp_path / name, 0)
    (tmp_path / "foreign" / "run.json").write_text("{}")
    (index,) = (tmp_path / "halved" / "index").rglob("*.parquet")
    index.write_bytes(index.read_bytes()[:-20])
    runs = tensortrial.open_runs(tmp_path)
    assert runs.names == ["good", "halved"]
    assert sorted(runs.damaged) == [str(tmp_path / "foreign"), str(index)]
    assert "not a run" in str(runs.damaged[str(tmp_path / "foreign")])
    assert repr(runs) == f"Runs(2 runs of {tmp_path}, some `damaged`)"
    assert runs.sql("select run, count(*) from scalars group by run").fetchall() == [("good", 4)]
    assert runs.sql("select steps from runs where run = 'halved'").fetchall() == [(0,)]
    (chunk,) = (tmp_path / "good" / "tensors").rglob("*.parquet")
    chunk.unlink()
    assert runs.sql("select count(*) from tensor_values").fetchall() == [(0,)]
    assert isinstance(runs.damaged[str(chunk)], MissingChunk)


def test_a_folder_that_cannot_be_listed_is_named_and_left_out(tmp_path: Path) -> None:
    for name in ("open", "shut"):
        write(tmp_path / name, 0)
    (tmp_path / "shut").chmod(0)
    runs = bound_by_modes(lambda: tensortrial.open_runs(tmp_path))
    assert runs.names == ["open"]
    assert list(runs.damaged) == [str(tmp_path / "shut")]
    assert f"refuses the list ({tmp_path}/shut): Permission denied" in str(runs.damaged[str(tmp_path / "shut")])


def test_places_that_cannot_be_listed_are_an_error_of_the_storage(tmp_path: Path) -> None:
    (tmp_path / "shut").mkdir(0)
    places = [tmp_path / name for name in ("none", "shut", "empty")]
    with pytest.raises(StorageError, match=r"empty: there is no run.*none: .*refuses the list .*Permission denied"):
        bound_by_modes(lambda: tensortrial.open_runs(places))


def test_a_bucket_that_refuses_to_be_listed_is_an_error_of_the_storage(ceph_s3: ObjectStore) -> None:
    pytest.importorskip("boto3")
    bucket = ceph_s3.new_bucket()
    name = bucket.removeprefix("s3://")
    deny = {"Effect": "Deny", "Principal": "*", "Action": ["s3:ListBucket"], "Resource": [f"arn:aws:s3:::{name}"]}
    ceph_s3.client.put_bucket_policy(Bucket=name, Policy=json.dumps({"Version": "2012-10-17", "Statement": [deny]}))
    with pytest.raises(StorageError, match=f"bucket refuses the list .bucket '{name}'.*AccessDenied, HTTP 403"):
        tensortrial.open_runs(f"{bucket}/runs", storage_options=ceph_s3.storage_options)
    with pytest.raises(StorageError, match=f"bucket refuses the .*'{name}'.*AccessDenied, HTTP 403"):
        tensortrial.create_trial(f"{bucket}/runs/a", storage_options=ceph_s3.storage_options)


@pytest.mark.parametrize("places", [None, 5, ["runs", 3]])
def test_a_place_that_is_no_path_is_an_error(places: Any) -> None:
    wrong = places[-1] if isinstance(places, list) else places
    with pytest.raises(ConfigurationError, match=f"must be a path or a URL, got {wrong}"):
        tensortrial.open_runs(places)


def test_findings_of_many_runs(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with Job(tmp_path / name) as job:
            job.step({"gradient/w": np.zeros(3)}, collections=("gradients",))
    trial = tensortrial.create_trial(tmp_path / "b")
    assert len(list(watch(trial, [VanishingGradient(trial)]))) == 1
    runs = tensortrial.open_runs(tmp_path)
    assert runs.sql("select run, rule from findings").fetchall() == [("b", "VanishingGradient")]


def test_a_query_reads_the_runs_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "project" / "a", 0)
    (tmp_path / "secret.csv").write_text("x\n1\n")
    runs = tensortrial.open_runs(tmp_path / "project")
    for query in (
        f"select * from '{tmp_path}/secret.csv'",
        f"copy tensors to '{tmp_path}/out.csv'",
        "drop view tensors",
    ):
        with pytest.raises(QueryRefused):
            runs.sql(query).fetchall()
    with pytest.raises(QueryError, match="nothing_here"):
        runs.sql("select * from nothing_here")
    assert runs.sql("select count(*) from scalars where value = $v", {"v": 2}).fetchall() == [(1,)]


def test_the_views_of_one_run_have_its_rows_of_the_views_of_many(tmp_path: Path) -> None:
    for number, name in enumerate(("a", "b")):
        write(tmp_path / name, number)
    trial, runs = tensortrial.create_trial(tmp_path / "b"), tensortrial.open_runs(tmp_path)
    for view in OF_ONE_RUN:
        expected = [row[1:] for row in runs.sql(f"select * from {view} where run = 'b'").fetchall()]
        assert sorted(map(repr, trial.sql(f"select * from {view}").fetchall())) == sorted(map(repr, expected)), view


def test_no_query_is_made_on_closed_runs_until_a_refresh(tmp_path: Path) -> None:
    write(tmp_path / "a", 0.0)
    runs = tensortrial.open_runs(tmp_path)
    runs.close()  # before the first query
    with pytest.raises(RunClosed):
        runs.sql("select 1")
    runs.refresh()
    assert runs.sql("select count(*) from runs").fetchall() == [(1,)]


def test_a_run_that_no_worker_has_claimed_stays_open_at_a_refresh(tmp_path: Path) -> None:
    write(tmp_path / "a", 0.0)
    (tmp_path / "a" / "collections" / "worker_0.json").unlink()
    runs = tensortrial.open_runs(tmp_path)
    runs.refresh()
    assert runs.names == ["a"]


def test_runs_stay_open_when_a_refresh_finds_none(tmp_path: Path) -> None:
    write(tmp_path / "a", 0.0)
    runs = tensortrial.open_runs(tmp_path)
    (tmp_path / "a").rename(tmp_path.parent / "elsewhere")
    with pytest.raises(RunNotFound):
        runs.refresh()
    (tmp_path.parent / "elsewhere").rename(tmp_path / "a")
    assert runs.sql("select run from runs").fetchall() == [("a",)]
