"""Named queries: each is asked of real runs, in DuckDB where they lie and in PostgreSQL where they were exported to."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlglot

import tensortrial
from support.commands import run_command, run_program
from support.queried_runs import Rows, answers, same_rows, write_runs
from support.runs import Job
from tensortrial.errors import ConfigurationError, InvalidQueryParameter, RunNotFound, UnknownQuery

QUERIES = sorted(tensortrial.list_queries())
ENGINES = ["postgres", "snowflake", "bigquery", "redshift", "spark"]
Answers = dict[str, tuple[dict[str, Any], Rows]]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answers]:
    """The folder of the runs, and what each query must answer."""
    folder = tmp_path_factory.mktemp("runs")
    return folder, answers(write_runs(folder))


@pytest.fixture(scope="module")
def database(asked: tuple[Path, Answers], postgres: Any) -> Iterator[Any]:
    """A cursor of PostgreSQL, to which the runs were exported."""
    from adbc_driver_postgresql import dbapi

    url = postgres.new_database()
    tensortrial.export(asked[0], url, progress=False)
    with closing(dbapi.connect(url)) as connection, closing(connection.cursor()) as cursor:
        yield cursor


def test_each_query_has_an_answer_to_be_held_against(asked: tuple[Path, Answers]) -> None:
    assert sorted(asked[1]) == QUERIES
    assert all(rows for _, rows in asked[1].values())


@pytest.mark.parametrize("name", QUERIES)
def test_on_duckdb(name: str, asked: tuple[Path, Answers]) -> None:
    parameters, expected = asked[1][name]
    found = tensortrial.query(asked[0], name, **parameters).fetchall()
    assert same_rows(found, expected), found


@pytest.mark.parametrize("name", QUERIES)
def test_on_postgresql(name: str, asked: tuple[Path, Answers], database: Any) -> None:
    parameters, expected = asked[1][name]
    database.execute(tensortrial.query_text(name, "postgres", **parameters))
    found = database.fetchall()
    assert same_rows(found, expected), found
    # ADBC gives a numeric of PostgreSQL, such as the sum of bigints, as text.
    texts = [[isinstance(value, str) for value in row] for row in expected]
    assert [[isinstance(value, str) for value in row] for row in found] == texts


@pytest.mark.parametrize("dialect", ENGINES)
@pytest.mark.parametrize("name", QUERIES)
def test_the_text_for_another_engine_is_sql_of_its_own(name: str, dialect: str, asked: tuple[Path, Answers]) -> None:
    text = tensortrial.query_text(name, dialect, **asked[1][name][0])
    tree = sqlglot.parse_one(text, read=dialect)
    assert isinstance(tree, sqlglot.exp.Select)
    assert not list(tree.find_all(sqlglot.exp.Placeholder, sqlglot.exp.Parameter))


@pytest.mark.parametrize("name", QUERIES)
def test_snowflake_finds_names_in_capitals(name: str, asked: tuple[Path, Answers]) -> None:
    text = tensortrial.query_text(name, "snowflake", **asked[1][name][0])
    assert '"' not in text


@pytest.mark.parametrize("name", QUERIES)
def test_the_columns_that_a_query_tells_are_those_it_has(name: str, asked: tuple[Path, Answers]) -> None:
    relation = tensortrial.query(asked[0], name, **asked[1][name][0])
    described = tensortrial.list_queries()[name]
    position = -1
    for column in relation.columns:
        found = described.columns.find(column, position + 1)
        assert found > position, f"{column} is not described, or not in its place: {described.columns}"
        position = found
    assert described.question.endswith("?")


def test_the_documentation_has_them_all() -> None:
    page = (Path(__file__).parents[2] / "docs" / "queries.md").read_text()
    for name, described in tensortrial.list_queries().items():
        assert f"| `{name}` | {described.question} |" in page
        assert all(f"`{parameter.name}`" in page for parameter in described.parameters)


def test_a_trial_and_opened_runs_can_be_asked(asked: tuple[Path, Answers]) -> None:
    trial = tensortrial.create_trial(asked[0] / "right")
    assert {row[0] for row in tensortrial.query(trial, "losses").fetchall()} == {"right"}
    runs = tensortrial.open_runs(asked[0])
    assert {row[0] for row in tensortrial.query(runs, "losses").fetchall()} == {"left", "right"}


def test_the_largest_can_be_the_best(asked: tuple[Path, Answers]) -> None:
    best = tensortrial.query(asked[0], "best_runs", largest=True, limit=1).fetchall()
    assert best == [("left", pytest.approx(50 / 9), "TRAIN", 6, "worker_0")]


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"from_rw": True}, "parameter from_rw is unknown; the nearest parameters are: from_raw"),
        ({"limits": 3}, "parameter limits is unknown; the nearest parameters are: limit"),
        ({"limit": "many"}, "parameter limit must be a whole number, got 'many'"),
        ({"limit": 2.5}, "parameter limit must be a whole number, got 2.5"),
        ({"limit": True}, "parameter limit must be a whole number, got True"),
        ({"largest": "perhaps"}, "parameter largest must be true or false, got 'perhaps'"),
        ({"name": 3}, "parameter name must be the name of a scalar, got 3"),
    ],
)
def test_a_wrong_parameter_is_named(parameters: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidQueryParameter, match=f"query best_runs: {sentence}"):
        tensortrial.query("nowhere", "best_runs", **parameters)


def test_what_must_be_given_is_said() -> None:
    with pytest.raises(InvalidQueryParameter, match="parameter right is required: the name of another"):
        tensortrial.query_text("compare_runs", "postgres", left="a")


def test_a_run_that_was_not_opened_is_named(asked: tuple[Path, Answers]) -> None:
    with pytest.raises(
        InvalidQueryParameter, match="parameter right names an unknown run, 'rigth'; the nearest are: right"
    ):
        tensortrial.query(asked[0], "compare_runs", left="left", right="rigth")


def test_a_scalar_that_is_not_there_is_named(asked: tuple[Path, Answers]) -> None:
    with pytest.raises(
        InvalidQueryParameter, match="parameter name names an unknown scalar, 'los'; the nearest are: loss"
    ):
        tensortrial.query(asked[0], "best_runs", name="los")


def test_what_is_not_finite_is_seen_in_statistics(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        for value in (1.0, float("nan")):
            job.step({"weight": np.full(3, value), "nothing": np.zeros(0)}, statistics=("mean",))
    found = tensortrial.query(tmp_path, "first_non_finite").fetchall()
    assert [(row[2], row[6]) for row in found] == [("weight", 1)]


def test_an_unknown_query_or_engine_gets_names_that_are_near() -> None:
    with pytest.raises(UnknownQuery, match="unknown query 'loses'; did you mean 'losses'"):
        tensortrial.query("nowhere", "loses")
    with pytest.raises(ConfigurationError, match="unknown SQL dialect 'postgresql'; known dialects: postgres"):
        tensortrial.query_text("losses", "postgresql")
    with pytest.raises(RunNotFound):
        tensortrial.query("nowhere", "losses")


def test_text_cannot_leave_its_quotes(asked: tuple[Path, Answers], database: Any) -> None:
    hostile = "x' or '1'='1' --"
    assert tensortrial.query(asked[0], "losses", runs=hostile).fetchall() == []
    database.execute(tensortrial.query_text("losses", "postgres", runs=hostile))
    assert database.fetchall() == []


class TestTheCommandLine:
    def run(self, *arguments: object, status: int = 0) -> subprocess.CompletedProcess[str]:
        done = run_command("query", *arguments, status=None)
        assert done.returncode == status, done.stderr
        return done

    def test_answers(self, asked: tuple[Path, Answers]) -> None:
        done = run_program("query", "best_runs", asked[0], "--param", "mode=EVAL", "--format", "csv")
        assert done.returncode == 0, done.stderr
        printed = done.stdout.splitlines()
        assert printed[0] == "run,best,mode,mode_step,worker"
        assert printed[1].startswith("left,0.083333")

    def test_lists_and_describes(self) -> None:
        head, _, rows = self.run("--list").stdout.rpartition("─")
        assert head.split()[:2] == ["query", "question"]
        assert re.findall(r"^ (\w+)", rows, re.MULTILINE) == QUERIES
        printed = self.run("dead_layers", "--list").stdout
        assert "--param threshold: number = 1e-08" in printed
        assert "order by share" in printed

    def test_prints_the_text_for_another_engine(self) -> None:
        printed = self.run("losses", "--dialect", "postgres", "--param", "runs=lr=%").stdout
        assert "run LIKE 'lr=%'" in printed

    def test_says_what_is_wrong(self, asked: tuple[Path, Answers]) -> None:
        assert "did you mean 'losses'" in self.run("loses", asked[0], status=2).stderr
        assert "is required" in self.run("compare_runs", asked[0], status=1).stderr
        assert "missing RUN; write: tensortrial query RUN losses" in self.run("losses", status=2).stderr
