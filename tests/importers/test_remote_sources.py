"""Sources in an object store and on servers: each is imported, or refused with what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.imported_runs import import_quietly, values
from support.servers import ObjectStore
from tensortrial.errors import ConfigurationError
from tensortrial.importers import csv, lightning, mlflow, neptune, tensorboard, trackio, transformers, wandb
from tensortrial.tfevents.summary import event, scalar
from tensortrial.tfevents.tfrecord import framed

pytest.importorskip("s3fs")

_NAME = "run #1?a=b 100%25 ü"
_TABLE = "step,loss\n0,1\n7,2.5\n"
_TRAINER = {"log_history": [{"step": 0, "loss": 1}, {"step": 7, "loss": 2.5}]}
_EVENTS = framed([event(1.7e9 + step, step, scalar("loss", value)) for step, value in ((0, 1.0), (7, 2.5))])


def _import_tables(*args: Any, **options: Any) -> list[str]:
    return [csv.import_run(*args, **options)]


@pytest.fixture
def bucket(moto_s3: ObjectStore) -> str:
    return moto_s3.new_bucket()


def _put(store: ObjectStore, url: str, data: bytes | str) -> None:
    bucket, _, key = url.removeprefix("s3://").partition("/")
    store.client.put_object(Bucket=bucket, Key=key, Body=data)


@pytest.mark.s3
@pytest.mark.parametrize("is_file", [False, True], ids=["folder", "file"])
@pytest.mark.parametrize(
    ("import_runs", "name", "data"),
    [
        pytest.param(_import_tables, f"{_NAME}.csv", _TABLE, id="csv"),
        pytest.param(lightning.import_runs, "metrics.csv", _TABLE, id="lightning"),
        pytest.param(neptune.import_runs, "a.csv", f"run,{_TABLE}".replace("\n", f"\n{_NAME},", 2), id="neptune"),
        pytest.param(wandb.import_runs, f"{_NAME}.csv", f"_{_TABLE}", id="wandb"),
        pytest.param(transformers.import_runs, "trainer_state.json", json.dumps(_TRAINER), id="transformers"),
        pytest.param(tensorboard.import_runs, "events.out.tfevents.1 #?%20", _EVENTS, id="tensorboard"),
    ],
)
def test_a_source_of_any_name_is_imported_from_an_object_store_and_into_it(
    bucket: str,
    moto_s3: ObjectStore,
    tmp_path: Path,
    import_runs: Callable[..., list[str]],
    name: str,
    data: str,
    is_file: bool,
) -> None:
    if is_file and import_runs is lightning.import_runs:
        pytest.skip("a run of CSVLogger is a folder")
    source = f"{bucket}/{_NAME}/{name}"
    _put(moto_s3, source, data)
    source = source if is_file else source.rpartition("/")[0]
    for target in (tmp_path / "runs", f"{bucket}/to/{_NAME}"):
        for _ in range(2):
            (run,), reported = import_quietly(import_runs, source, target, storage_options=moto_s3.storage_options)
            assert reported == []
        found = values(run, "loss", storage_options=moto_s3.storage_options if "://" in run else None)
        assert found == {0: 1.0, 7: 2.5}


def _write_store(folder: Path) -> None:
    run = folder / "0" / "a #1"
    files = {
        folder / "0/meta.yaml": "name: digits\n",
        run / "meta.yaml": "run_id: a\n",
        run / "metrics/100 %?": "1740830400000 0.5 3\n",
        run / "artifacts/b #1/table.csv": _TABLE,
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.s3
def test_a_store_of_mlflow_is_imported_from_an_object_store_with_its_artifacts(
    bucket: str, moto_s3: ObjectStore, tmp_path: Path
) -> None:
    pytest.importorskip("yaml")
    _write_store(tmp_path / "mlruns")
    for path in (tmp_path / "mlruns").rglob("*"):
        if path.is_file():
            _put(moto_s3, f"{bucket}/{path.relative_to(tmp_path)}", path.read_bytes())
    options: dict[str, Any] = {"storage_options": moto_s3.storage_options, "artifacts": True}
    (run,), reported = import_quietly(mlflow.import_runs, f"{bucket}/mlruns", tmp_path / "runs", **options)
    assert reported == []
    assert values(run, "100 %?") == {3: 0.5}
    assert values(run, "b #1/table.csv/loss") == {0: 1.0, 7: 2.5}


def test_a_store_of_mlflow_is_found_by_its_tracking_uri(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    _write_store(tmp_path / "100%25 ü")
    (run,), _ = import_quietly(mlflow.import_runs, (tmp_path / "100%25 ü").as_uri(), tmp_path / "runs")
    assert values(run, "100 %?") == {3: 0.5}


def test_what_can_be_read_from_a_disk_only_says_so(tmp_path: Path) -> None:
    for import_runs in (mlflow.import_runs, trackio.import_runs):
        with pytest.raises(ConfigurationError, match=r"from a disk only: copy s3://bucket/project\.db to one"):
            import_runs("s3://bucket/project.db", tmp_path / "runs")
    with pytest.raises(ConfigurationError, match="instead of http://localhost:5000, pass the folder or the SQLite"):
        mlflow.import_runs("http://localhost:5000", tmp_path / "runs")
