"""Targets on a disk whose paths have signs that mean something in a URL."""

from __future__ import annotations

from pathlib import Path

import pytest

import tensortrial
from support.export_conformance import write_run
from tensortrial.errors import ConfigurationError, ExportError

SIGNS = "Bü ro#1?50%25=[x]|y*"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("{}", f"{SIGNS}.duckdb"),
        ("{}", "mode:x.duckdb"),
        ("duckdb:{}", f"{SIGNS}.duckdb"),
        ("duckdb://{}", f"{SIGNS}.duckdb"),
        ("csv:{}", SIGNS),
        ("parquet:{}", SIGNS),
        ("tensorboard:{}", SIGNS),
        ("delta:{}", "Bü ro#1?{z}=y*"),
        ("iceberg:sqlite:///{}/catalogue.db", "Bü ro#1 =[x]|y*"),
    ],
)
def test_a_plain_path_is_a_path(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch, url: str, name: str
) -> None:
    folder = tmp_path / "exports"
    folder.mkdir()
    monkeypatch.chdir(folder)
    target = url.replace("{}", name if url == "{}" else str(folder / name))
    tables = {} if url.startswith("tensorboard") else {"tables": ["steps"]}
    assert any(tensortrial.export(run, target, progress=False, **tables).rows.values())
    assert [path.name for path in folder.iterdir()] == [name]
    if not url.startswith("iceberg"):
        assert not any(tensortrial.export(run, target, progress=False, **tables).rows.values())


def test_a_path_that_delta_lake_cannot_open_is_refused_before_anything_is_written(tmp_path: Path, run: Path) -> None:
    for name in ("[x]", "a|b", "a^b", "50%25", "a\\b", "a\nb"):
        with pytest.raises(ExportError, match=r"cannot open a path with .*; choose a folder without it"):
            tensortrial.export(run, f"delta:{tmp_path}/{name}", progress=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url", ["csv:{}", "parquet:{}/index", "tensorboard:{}/tensorboard", "duckdb:{}/tensors/x.duckdb", "{}/end/x.duckdb"]
)
def test_a_place_among_the_files_of_a_run_is_refused_before_anything_is_written(tmp_path: Path, url: str) -> None:
    run = write_run(tmp_path / "a")
    before = sorted(run.rglob("*"))
    with pytest.raises(ConfigurationError, match=r"is among the files of the run .*; choose another place"):
        tensortrial.export(run, url.format(run), progress=False)
    assert sorted(run.rglob("*")) == before


def test_the_warehouse_of_a_catalogue_is_not_the_folder_of_a_run(tmp_path: Path, run: Path) -> None:
    (tmp_path / "link").symlink_to(run)
    for target, options in {
        "delta:{}/link": {},
        "iceberg:sqlite:///{}/x.db": {"warehouse": f"{tmp_path}/link"},
    }.items():
        with pytest.raises(ConfigurationError, match="among the files of the run"):
            tensortrial.export(run, target.format(tmp_path), progress=False, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_a_target_is_not_in_a_run_in_an_object_store() -> None:
    url = "memory://bucket/run"
    with tensortrial.Run(url) as run:
        run.log({"loss": 1.0})
    with pytest.raises(ConfigurationError, match="among the files of the run memory://bucket/run"):
        tensortrial.export(url, f"csv:{url}/index", progress=False)


def test_other_folders_in_the_folder_of_a_run_are_free(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    tensortrial.export(run, f"csv:{run}/exported", tables=["steps"], progress=False)
    assert (run / "exported/steps/a").is_dir()
