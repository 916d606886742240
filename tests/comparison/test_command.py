"""`tensortrial compare`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from support.runs import EVAL, TRAIN, Job
from tensortrial.cli import main


def write(folder: Path, last: float = 1.0, prefix: str = "") -> str:
    with Job(folder, is_ordered=True) as job:
        for step in range(3):
            job.step({f"{prefix}w": np.ones(3), f"{prefix}v": np.array([2.0, last if step == 2 else 1.0])})
    return str(folder)


def compare(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["compare", *arguments])


def test_the_exit_status_says_whether_runs_differ(tmp_path: Path) -> None:
    a, same, b = write(tmp_path / "a"), write(tmp_path / "same"), write(tmp_path / "b", 1.5)
    assert (compare(a, same).exit_code, compare(a, b).exit_code, compare(a, str(tmp_path / "c")).exit_code) == (0, 1, 2)
    assert compare(a).exit_code == 2
    assert compare(a, b, "--rtol", "0.5").exit_code == 0
    assert compare(a, b, "--regex", "w").exit_code == 0
    assert compare(a, b, "--atol", "-1").exit_code == 2
    assert compare(a, "--steps", "0", "1").exit_code == 0
    assert compare(a, same, "--regex", "wieght").exit_code == 2
    assert compare(a, b, "--ulps", "9" * 30).exit_code == 0


def test_runs_without_a_common_tensor_or_step_are_an_error(tmp_path: Path) -> None:
    a, renamed = write(tmp_path / "a"), write(tmp_path / "renamed", prefix="model.")
    Job(tmp_path / "empty").close()
    for b in (renamed, str(tmp_path / "empty")):
        found = compare(a, b)
        assert found.output.startswith("there is nothing to compare")
        assert found.exit_code == 2


def test_a_run_of_which_nothing_differs_but_a_file_is_damaged_is_an_error(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a"), write(tmp_path / "b")
    (file,) = Path(b).glob("index/**/*.parquet")
    file.write_bytes(file.read_bytes()[:-50])
    Path(b, "collections", "worker_0.json").touch()
    found = compare(a, b, "--steps", "0", "0")
    assert found.exit_code == 2


def test_the_first_line_is_the_answer(tmp_path: Path) -> None:
    lines = compare(write(tmp_path / "a"), write(tmp_path / "b", 1.5)).output.splitlines()
    assert lines[0].startswith(
        "first difference at step 2: v (the 2nd of 2 tensors of the step; those before it agree)"
    )
    assert any(line.split()[:3] == ["2", "1", "v"] for line in lines)


def test_the_answer_is_printed_as_json_and_written_as_rows(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a", prefix="old."), write(tmp_path / "b", float("nan"))
    found = compare(a, b, "--map", r"^old\.=", "--json")
    document = json.loads(found.output)
    assert (document["same"], document["first"]["difference"]["name"]) == (False, "old.v")
    assert document["first"]["difference"]["max_abs"] == "nan"
    output = str(tmp_path / "rows.parquet")
    assert compare(a, b, "--map", r"^old\.=", "--format", "parquet", "--output", output).exit_code == 1
    assert pq.read_table(output)["name"].to_pylist() == ["old.v"]
    assert compare(a, b, "--map", "nonsense").exit_code == 2


@pytest.mark.parametrize("arguments", [["--workers", "worker_0", "worker_1"], ["--steps", "0", "9"]])
def test_an_unknown_worker_or_step_is_an_error(tmp_path: Path, arguments: list[str]) -> None:
    found = compare(write(tmp_path / "a"), *arguments)
    assert found.exit_code == 2
    assert "worker_1" in found.output or "step 9" in found.output


def test_a_name_with_line_breaks_forges_no_answer(tmp_path: Path) -> None:
    name = "w\nno difference: all agree\x1b[2J"
    for folder, last in ((tmp_path / "a", 1.0), (tmp_path / "b", 2.0)):
        with Job(folder) as job:
            job.step({name: np.array([last, 1.0])})
    output = compare(str(tmp_path / "a"), str(tmp_path / "b")).output
    assert "\x1b" not in output
    assert not any(line.startswith("no difference") for line in output.splitlines())


def test_rows_of_several_modes_name_the_mode(tmp_path: Path) -> None:
    for name, of_train, of_eval in (("a", ["loss"], ["loss", "weight"]), ("b", ["loss", "weight"], ["loss"])):
        with Job(tmp_path / name) as job:
            job.step(dict.fromkeys(of_train, 1.0), TRAIN)
            job.step(dict.fromkeys(of_eval, 1.0), EVAL)
    found = compare(str(tmp_path / "a"), str(tmp_path / "b")).stdout
    assert re.search(r"TRAIN 0 +weight +only b has it at this step", found)
    assert re.search(r"EVAL 0 +weight +only a has it at this step", found)
    found = compare(str(tmp_path / "a"), str(tmp_path / "b"), "--mode", "TRAIN").stdout
    assert "only b has 1 tensor of TRAIN: weight" in found
