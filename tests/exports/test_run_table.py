"""The wide table of runs, in Python and at the shell."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import tensortrial
from support.commands import run_command
from tensortrial.errors import RunNotFound
from tensortrial.exports import run_table


def save(folder: Path, metadata: dict[str, Any], losses: list[float], mode: str = "TRAIN") -> None:
    with tensortrial.Run(folder, metadata=metadata) as run:
        for step, loss in enumerate(losses):
            run.log({"loss": loss}, step=step, mode=mode)


def test_a_run_is_a_row_with_its_metadata_and_the_last_and_best_of_each_scalar(tmp_path: Path) -> None:
    save(tmp_path / "a", {"lr": 0.1, "model": {"width": 64}, "note": "first"}, [3.0, 1.0, 2.0])
    save(tmp_path / "b", {"lr": 1, "tags": ["x", "y"]}, [5.0, math.nan], mode="EVAL")
    table = run_table(tmp_path)
    a, b = table.to_pylist()
    assert (a["run"], a["steps"], a["framework"]) == ("a", 3, "none")
    assert (a["metadata.lr"], a["metadata.model.width"], a["metadata.note"], a["metadata.tags"]) == (
        0.1,
        64,
        "first",
        None,
    )
    assert {name: a[f"loss.TRAIN.{name}"] for name in ("last", "last_step", "min", "max", "steps")} == {
        "last": 2.0,
        "last_step": 2,
        "min": 1.0,
        "max": 3.0,
        "steps": 3,
    }
    assert a["loss.EVAL.last"] is None
    assert (b["metadata.lr"], b["metadata.tags"]) == (1.0, ["x", "y"])
    assert math.isnan(b["loss.EVAL.last"])
    assert (b["loss.EVAL.min"], b["loss.EVAL.max"]) == (5.0, 5.0)


def test_values_of_several_types_are_texts(tmp_path: Path) -> None:
    for name, value in {"a": 1, "b": "two", "c": [3], "d": 2**70}.items():
        save(tmp_path / name, {"odd": value, "empty": None}, [1.0])
    table = run_table(tensortrial.open_runs(tmp_path))
    assert table["metadata.odd"].to_pylist() == ["1", "two", "[3]", str(2**70)]
    assert table["metadata.empty"].to_pylist() == [None] * 4


def test_keys_of_metadata_that_are_equal_once_joined_are_numbered(tmp_path: Path) -> None:
    save(tmp_path / "a", {"lr.b": 1, "lr": {"b": 2, "b (2)": 3}}, [1.0])
    (row,) = run_table(tmp_path).to_pylist()
    found = {name: value for name, value in row.items() if name.startswith("metadata.")}
    assert found == {"metadata.lr.b": 1, "metadata.lr.b (2)": 2, "metadata.lr.b (2) (2)": 3}


def test_runs_without_scalars_and_metadata_have_the_columns_of_runs(tmp_path: Path) -> None:
    with tensortrial.Run(tmp_path / "a") as run:
        run.save_tensor("weight", [1.0, 2.0])
    assert not [name for name in run_table(tmp_path).column_names if "." in name]
    with pytest.raises(RunNotFound):
        run_table(tmp_path / "missing")


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_ls_writes_it(tmp_path: Path, form: str) -> None:
    save(tmp_path / "runs/a", {"lr": 0.1}, [3.0, 1.0, 2.0])
    save(tmp_path / "runs/b", {"lr": 0.2}, [1.0])
    file = tmp_path / f"runs.{form}"
    run_command("ls", tmp_path / "runs", "--format", form, "--output", file)
    if form == "parquet":
        rows = pq.read_table(file).to_pylist()
    else:
        rows = list(csv.DictReader(io.StringIO(file.read_text())))
    assert [(row["run"], float(row["metadata.lr"]), float(row["loss.TRAIN.min"])) for row in rows] == [
        ("a", 0.1, 1.0),
        ("b", 0.2, 1.0),
    ]


def test_ls_takes_one_way_to_print(tmp_path: Path) -> None:
    save(tmp_path / "a", {}, [1.0])
    done = run_command("ls", tmp_path, "--json", "--format", "csv", status=2)
    assert "pass one of them" in done.stderr
