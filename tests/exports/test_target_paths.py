"""Targets on a disk whose paths have signs that mean something in a URL."""

from __future__ import annotations

from pathlib import Path

import pytest

import tensortrial
from tensortrial.errors import ExportError

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
