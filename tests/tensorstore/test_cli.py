"""The command line, run as a user runs it: a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from runs import Job

from tensortrial.claim import claim
from tensortrial.mode import ModeKeys
from tensortrial.records import Plan, Record, Step
from tensortrial.schema import RunInfo, WorkerInfo
from tensortrial.storage import open_storage
from tensortrial.writer import Writer


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of five TRAIN steps, every tenth, and one EVAL step."""
    storage = open_storage(tmp_path / "run")
    worker = WorkerInfo("worker_0", 1, "2026-01-01", [{"name": "weights"}])
    claim(storage, RunInfo("2026-01-01T00:00:00+00:00", "none"), worker)
    writer = Writer(storage, "worker_0")
    weight, loss = Plan("net.weight", ("weights",), True, ("l2",)), Plan("loss", (), True)
    for number in range(5):
        records = [Record(weight, np.full(3, number, np.float32), 0), Record(loss, float(number), 0)]
        writer.put(Step(ModeKeys.TRAIN, 10 * number, number), records, closes=True)
    writer.put(Step(ModeKeys.EVAL, 0, 5), [Record(loss, 0.5, 0)], closes=True)
    writer.close()
    return tmp_path / "run"


def tensortrial(*arguments: object, cwd: Path | None = None, status: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tensortrial", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=cwd)
    assert done.returncode == status, done.stderr
    return done


def test_info_says_what_the_run_is(run: Path) -> None:
    printed = tensortrial("info", run).stdout
    for fact in ("ended", "worker_0", "steps TRAIN  0-40:10", "steps EVAL   0", "weights      1"):
        assert fact in printed, printed


def test_names_can_be_chosen(run: Path) -> None:
    assert tensortrial("names", run).stdout.split() == ["loss", "net.weight"]
    assert tensortrial("names", run, "--regex", "^net").stdout.split() == ["net.weight"]
    assert tensortrial("names", run, "--collection", "weights").stdout.split() == ["net.weight"]
    assert tensortrial("names", run, "--step", 0, "--mode", "eval").stdout.split() == ["loss"]


def test_steps_are_ranges(run: Path) -> None:
    assert tensortrial("steps", run).stdout.split() == ["0-5"]
    assert tensortrial("steps", run, "--mode", "TRAIN").stdout.split() == ["0-40:10"]


def test_sql_prints_a_table_csv_or_json(run: Path) -> None:
    query = "select name, count(*) as n, max(value) as top from scalars group by name"
    assert "loss" in tensortrial("sql", run, query).stdout
    assert tensortrial("sql", run, query, "--format", "csv").stdout.split() == ["name,n,top", "loss,6,4.0"]
    assert json.loads(tensortrial("sql", run, query, "--format", "json").stdout) == {"name": "loss", "n": 6, "top": 4.0}


def test_mark_ended(run: Path) -> None:
    (run / "end" / "worker_0.json").unlink()
    assert "running" in tensortrial("info", run).stdout
    tensortrial("mark-ended", run)
    assert "ended" in tensortrial("info", run).stdout


@pytest.mark.parametrize(
    ("status", "arguments", "sentence"),
    [
        (1, ["info", "nowhere"], "there is no run here"),
        (1, ["sql", "RUN", "drop table x"], "only one SELECT"),
        (1, ["sql", "RUN", "select nothing from tensors"], "nothing"),
        (1, ["names", "RUN", "--regex", "("], "is not a regular expression"),
        (2, ["info", "RUN", "-o", "endpoint"], "is not KEY=VALUE"),
    ],
)
def test_an_error_is_one_sentence_and_no_traceback(run: Path, status: int, arguments: list[str], sentence: str) -> None:
    done = tensortrial(*[run if argument == "RUN" else argument for argument in arguments], status=status)
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_sql_over_many_runs(tmp_path: Path) -> None:
    for name, loss in (("a", 1.0), ("b", 2.0)):
        with Job(tmp_path / "project" / name) as job:
            job.step({"loss": loss})
    (tmp_path / "project" / "broken").mkdir()
    (tmp_path / "project" / "broken" / "run.json").write_text("{}")
    query = "select run, value from scalars order by run"
    for places in (["project"], ["project/*"], ["project/a", "project/b"]):
        found = tensortrial("sql", *places, query, "--format", "csv", cwd=tmp_path)
        assert found.stdout == "run,value\na,1.0\nb,2.0\n"
        assert ("left out" in found.stderr) == (places != ["project/a", "project/b"])
    for form, read in (("parquet", pq.read_table), ("arrow", lambda path: pa.ipc.open_stream(path).read_all())):
        path = tmp_path / f"rows.{form}"
        tensortrial("sql", "project", query, "--format", form, "--output", path, cwd=tmp_path)
        assert read(path).to_pydict() == {"run": ["a", "b"], "value": [1.0, 2.0]}
    nothing = tensortrial("sql", "project/broken", query, cwd=tmp_path, status=1)
    assert "not a run" in nothing.stderr


@pytest.mark.parametrize("command", ["info", "names", "steps", "sql", "mark-ended", "compact"])
def test_help_says_what_a_command_does(command: str) -> None:
    printed = tensortrial(command, "--help").stdout
    assert "RUN" in printed
    assert "--storage-option" in printed
