"""Arguments of wrong types: each method of a trial and its tensors returns an answer or raises an error of the tree."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import tensortrial
from tensortrial.errors import (
    ConfigurationError,
    InvalidWorker,
    NotARun,
    QueryTimeout,
    SnapshotNotFound,
    TensorTrialError,
)

WRONG = [
    None, "x", "3", b"a", 2.5, float("nan"), float("inf"), -1, 10**30, True, 1j, [1], ["a"], (1,), {}, {1}, object(),
    np.int64(2), np.float64(2), np.bool_(True), np.array(2), np.array(["a"]), tensortrial.modes.TRAIN,
]  # fmt: skip
TEXT: Any = "x"
NUMBER: Any = 5
AT = {"mode": "GLOBAL", "worker": "worker_0"}
OF_TRIAL: dict[str, dict[str, Any]] = {
    "tensor": {"tname": "w"},
    "has_tensor": {"tname": "w"},
    "tensor_names": {"step": 1, "mode": "GLOBAL", "regex": None, "collection": None},
    "environment": {"worker": "worker_0"},
    "steps": {"mode": "GLOBAL"},
    "global_step": {"mode": "GLOBAL", "mode_step": 1},
    "mode_step": {"global_step": 1},
    "mode": {"global_step": 1},
    "collection": {"coll_name": "default"},
    "has_passed_step": {"step": 1, "mode": "GLOBAL"},
    "wait_for_steps": {"required_steps": [1], "mode": "GLOBAL", "timeout": 0},
    "mark_ended": {"worker": "worker_0"},
    "values": {"names": "w", "steps": [1], **AT},
    "inputs": {"step": 1, **AT},
    "sql": {"query": "select 1", "parameters": None},
    "frame": {"names": "w", "statistic": "l2", **AT, "engine": "pandas"},
}
OF_TENSOR: dict[str, dict[str, Any]] = {
    "steps": {"mode": "GLOBAL"},
    "value": {"step_num": 1, **AT},
    "values": AT,
    "shape": {"step_num": 1, **AT},
    "shapes": AT,
    "reduction": {"step_num": 1, "reduction_name": "l2", **AT},
    "reduction_value": {"step_num": 1, "reduction_name": "l2", **AT, "abs": True, "axis": 0},
    "reduction_values": {"step_num": 1, **AT},
    "histogram": {"step_num": 1, **AT},
    "quantile": {"step_num": 1, "q": 0.5, **AT},
    "workers": {"step_num": 1, "mode": "GLOBAL"},
    "prev_steps": {"step": 1, "n": 1, "mode": "GLOBAL"},
}
OF_PACKAGE: dict[str, dict[str, Any]] = {
    "create_trial": {"path": "run", "name": "x", "range_steps": (0, 9), "timeout": 0, "verify": True, "snapshot": None},
    "open_runs": {"places": "run", "storage_options": {}, "verify": True},
    "compare": {"a": "run", "b": "run", "rtol": 0, "atol": 0, "ulps": 1, "map": {"w": "w"}, "regex": "w", "mode": None}
    | {"workers": ("worker_0", "worker_0"), "steps": (1, 2)},
    "annotate": {"path": "run", "note": "x", "tags": ["a"], "add_tags": [], "remove_tags": [], "archived": False},
    "export": {"runs": "run", "target": "csv:copy", "tables": ["runs"], "since": 1, "progress": False, "prune": False},
    "compact": {"path": "run", "delete_older_than": 0, "storage_options": {}, "progress": False},
    "repair": {"path": "run", "dry_run": False, "delete_older_than": 0, "storage_options": {}, "progress": False},
    "verify": {"path": "run", "storage_options": {}, "progress": False},
}
OF = {"trial": OF_TRIAL, "tensor": OF_TENSOR, "package": OF_PACKAGE}


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("run") / "run"
    with tensortrial.Run(folder) as run:
        for step in range(4):
            run.log({"loss": 1.0}, step=step)
            run.save_tensor("w", np.arange(6.0).reshape(2, 3) + step)
    return tensortrial.create_trial(folder)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # NumPy 1 warns of numbers that NumPy 2 refuses
@pytest.mark.parametrize("method", [(kind, each) for kind, methods in OF.items() for each in methods])
def test_an_argument_of_a_wrong_type_is_an_error_of_the_tree(
    trial: Any, method: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, name = method
    if name == "frame":
        pytest.importorskip("pandas")
    monkeypatch.chdir(os.path.dirname(trial.path))
    asked = {"trial": trial, "tensor": trial.tensor("w"), "package": tensortrial}[kind]
    arguments = OF[kind][name]
    getattr(asked, name)(**arguments)
    for argument in arguments:
        for value in WRONG:
            with suppress(TensorTrialError):
                getattr(asked, name)(**{**arguments, argument: value})


def test_the_error_of_an_argument_names_it(trial: Any) -> None:
    tensor = trial.tensor("w")
    for call, sentence in (
        (lambda: tensor.prev_steps(3, "x"), "n must be a number of steps or None, got 'x'"),
        (lambda: tensor.prev_steps("x", 3), "a step must be a whole number, got 'x'"),
        (lambda: tensor.value([1]), r"a step must be a whole number, got \[1\]"),
        (lambda: trial.values("w", 3), "steps must be a list of whole numbers, got 3"),
        (lambda: trial.wait_for_steps([1], timeout="x"), "timeout must be a number of seconds, 0 or more, or None"),
        (lambda: tensortrial.create_trial(trial.path, timeout=float("nan")), "timeout must be a number of seconds"),
        (lambda: trial.sql("select 1", timeout=-1), "timeout must be a number of seconds, 0 or more, or None, got -1"),
        (
            lambda: tensortrial.create_trial(trial.path, engine="spark"),
            "engine must be an SQL engine, such as SparkEngine",
        ),
        (lambda: tensortrial.no_refresh(TEXT).__enter__(), "no_refresh and refresh take a trial or several, got 'x'"),
        (lambda: tensortrial.no_refresh(NUMBER).__enter__(), "no_refresh and refresh take a trial or several, got 5"),
        (lambda: tensortrial.compare(trial, trial, rtol="x"), "rtol must be a number of 0 or more, got 'x'"),
        (lambda: tensortrial.compare(trial, trial, map=["w"]), "map must be a dictionary of names, got"),
        (lambda: tensortrial.compare(trial, steps=(1,)), r"steps must be a pair, one of each side, got \(1,\)"),
        (lambda: tensortrial.compare(trial, trial, regex=[5]), "is not a regular expression"),
        (lambda: tensortrial.export(trial, NUMBER), "target must be a URL such as duckdb:runs.duckdb, got 5"),
        (lambda: tensortrial.export(trial, ""), "target must be a URL such as duckdb:runs.duckdb, got ''"),
        (lambda: tensortrial.query(trial, NUMBER), "unknown query 5; known queries: "),
        (lambda: tensortrial.annotate(trial.path, add_tags=NUMBER), "add_tags must be a list of texts such as"),
        (lambda: trial.sql([1]), r"a query must be text, got \[1\]"),
        (lambda: trial.tensor_names(collection=3), "collection must be a collection or its name, got 3"),
        (lambda: trial.tensor_names(step="3"), "a step must be a whole number, got '3'"),
    ):
        with pytest.raises(ConfigurationError, match=sentence):
            call()
    with pytest.raises(SnapshotNotFound, match="the id of a snapshot must be 16 hexadecimal digits, got 5"):
        tensortrial.create_trial(trial.path, snapshot=5)
    with pytest.raises(InvalidWorker, match=r"unknown worker '\[1\]'; choose one of: worker_0"):
        tensor.value(1, worker=[1])


@pytest.mark.parametrize("wrong", [5, (2,), (1, 2, 3), "2,6", ("2", "6"), ["a", None]])
def test_a_range_of_steps_that_is_no_pair_is_named(trial: Any, wrong: Any) -> None:
    sentence = re.escape(f"range_steps must be a pair (first, end), got {wrong!r}")
    with pytest.raises(ConfigurationError, match=sentence):
        tensortrial.create_trial(trial.path, range_steps=wrong)


def test_the_error_of_a_file_says_that_it_is_one(trial: Any) -> None:
    with pytest.raises(NotARun, match="this is a file, and a run is a folder"):
        tensortrial.create_trial(f"{trial.path}/run.json")


def test_the_error_of_a_folder_of_runs_says_what_opens_them(trial: Any) -> None:
    with pytest.raises(NotARun, match="this is not a run; open_runs opens those in a folder"):
        tensortrial.create_trial(os.path.dirname(trial.path))


def test_a_timeout_may_be_the_text_of_a_number(trial: Any) -> None:
    endless = "select count(*) from range(10000000) a, range(10000000) b where hash(a.range + b.range) = 0"
    with pytest.raises(QueryTimeout, match=r"its timeout of 0\.01 seconds"):
        trial.sql(endless, timeout="0.01").fetchall()


def test_numbers_of_numpy_are_steps(trial: Any) -> None:
    tensor = trial.tensor("w")
    for step in (np.int64(2), np.array(2)):
        assert tensor.value(step)[0, 0] == 2
        assert list(trial.values("w", [step])["w"]) == [2]
    assert tensor.prev_steps(np.int64(2), np.uint8(2)) == [1, 2]
