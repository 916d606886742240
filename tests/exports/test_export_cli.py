"""`tensortrial export`."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import pytest

from support.commands import run_command, run_program
from support.export_conformance import write_run
from support.runs import Job


def export(*arguments: object, status: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    done = run_command("export", *arguments, status=None, **environment)
    assert done.returncode == status, done.stderr
    return done


def test_it_says_what_it_moved(tmp_path: Path, run: Path) -> None:
    other = write_run(tmp_path / "b", 1)
    done = run_program("export", run, other, tmp_path / "x.duckdb", "--table", "steps", "--table", "tensors")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "steps: 7 rows\ntensors: 35 rows\n"
    assert export(run, tmp_path / "x.duckdb", "--no-progress").stdout.splitlines()[2:] == [
        "steps: 0 rows",
        "tensors: 0 rows",
    ]


@pytest.mark.parametrize("form", ["parquet", "csv", "delta", "duckdb"])
def test_a_full_disk_under_the_target_is_an_error_of_one_line(tmp_path: Path, small_disk: Path, form: str) -> None:
    with Job(tmp_path / "run") as job:
        for step in range(20):
            job.step({f"{step} {number} {hash((step, number))}": float(number) for number in range(2000)})
    if form == "delta":
        pytest.importorskip("deltalake")
    (small_disk / "other").write_bytes(bytes(13 << 17))
    done = export(tmp_path / "run", f"{form}:{small_disk}/x", "--table", "tensors", status=1)
    assert done.stderr.startswith(f"Error: {form}:") or form == "duckdb"
    assert re.search("disk is full|No space left", done.stderr)
    assert done.stderr.count("\n") == 1
    (small_disk / "other").unlink()


def test_since_is_a_step_or_a_time(tmp_path: Path, run: Path) -> None:
    assert export(run, f"csv:{tmp_path}/x", "--since", 5, "--table", "steps").stdout == "steps: 1 row\n"
    assert export(run, f"csv:{tmp_path}/y", "--since", "2030-01-01", "--table", "steps").stdout == "steps: 0 rows\n"
    assert "must be a global step or a time" in export(run, "csv:x", "--since", "soon", status=2).stderr


def test_the_password_comes_from_the_environment(run: Path, postgres: Any) -> None:
    parts = urlsplit(postgres.new_database())
    target = f"postgresql://{parts.username}@{parts.hostname}:{parts.port}{parts.path}"
    done = export(run, target, "--target-option", "schema=runs", PGPASSWORD=str(parts.password))
    assert "tensors: 30 rows\n" in done.stdout
    refused = export(run, target, status=1, PGPASSWORD="hunter2-secret")
    assert refused.stderr.startswith(f"Error: postgresql://{parts.hostname}:{parts.port}{parts.path}: ")
    assert "authentication failed" in refused.stderr
    assert "hunter2" not in refused.stderr


def test_what_is_damaged_is_said_and_the_status_is_1(tmp_path: Path) -> None:
    write_run(tmp_path / "runs/a", 1)
    (tmp_path / "runs/b").mkdir()
    (tmp_path / "runs/b/run.json").write_text("{}")
    done = export(tmp_path / "runs", tmp_path / "x.duckdb", "--prune", status=1)
    assert [line.split()[0] for line in done.stderr.splitlines()] == ["nothing", "skipped:"]
    assert "not a run" in done.stderr
    with duckdb.connect(str(tmp_path / "x.duckdb")) as database:
        assert database.sql("select run from runs").fetchall() == [("a",)]
