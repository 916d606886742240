"""Named queries in emulators of Snowflake and BigQuery: `make test-emulators`. Both have a DuckDB below them, so they
show that the text is understood, and not that the real ones give these rows.

Each lives in an environment of its own, and a program of its own asks it.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import tensortrial
from support.queried_runs import Rows, answers, same_rows, write_runs

QUERIES = sorted(tensortrial.list_queries())
# fakesnow keeps an array as JSON, and makes of ARRAY_CONTAINS what DuckDB has for lists only.
NOT_IN_FAKESNOW = {
    "best_runs",
    "gradient_norms",
    "loss_spikes",
    "losses",
    "spike_scores",
    "weight_changes",
    "worker_divergence",
}
Answers = dict[str, tuple[dict[str, Any], Rows]]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answers]:
    """A folder with the tables that the runs make, and what each query must answer."""
    runs, folder = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("tables")
    saved = write_runs(runs)
    opened = tensortrial.open_runs(runs)
    for view in ("runs", "tensors", "scalars", "steps"):
        left_out = "exclude (histogram, digest)" if view == "tensors" else ""
        table = opened.sql(f"select * {left_out} from {view}").to_arrow_table()
        pq.write_table(table, folder / f"{view}.parquet")
    return folder, answers(saved)


@pytest.fixture(scope="module")
def in_fakesnow(asked: tuple[Path, Answers]) -> dict[str, Any]:
    return ask("snowflake", "in_fakesnow.py", "TENSORTRIAL_FAKESNOW_PYTHON", *asked)


@pytest.fixture(scope="module")
def in_bqemulator(asked: tuple[Path, Answers]) -> dict[str, Any]:
    return ask("bigquery", "in_bqemulator.py", "TENSORTRIAL_BQEMULATOR_PYTHON", *asked)


def ask(dialect: str, program: str, variable: str, folder: Path, asked: Answers) -> dict[str, Any]:
    python = os.environ.get(variable)
    if not python:
        pytest.skip(f"{variable} names no environment with the emulator: `make test-emulators`")
    texts = {name: tensortrial.query_text(name, dialect, **parameters) for name, (parameters, _) in asked.items()}
    (folder / "queries.json").write_text(json.dumps(texts))
    command = [Path(python).absolute(), Path(__file__).with_name(program), folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", QUERIES)
def test_in_snowflake(name: str, asked: tuple[Path, Answers], in_fakesnow: dict[str, Any]) -> None:
    if name in NOT_IN_FAKESNOW:
        assert "array_length(JSON)" in in_fakesnow[name], "fakesnow supports this now: expect rows"
    else:
        assert same_rows(in_fakesnow[name], asked[1][name][1]), in_fakesnow[name]


@pytest.mark.parametrize("name", QUERIES)
def test_in_bigquery(name: str, asked: tuple[Path, Answers], in_bqemulator: dict[str, Any]) -> None:
    assert same_rows(in_bqemulator[name], asked[1][name][1]), in_bqemulator[name]
