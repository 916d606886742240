"""Runs written by each released format are read forever, and docs/format.md is enough to read them."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from tensortrial.dtypes import storable
from tensortrial.read.trial import Trial
from tensortrial.statistics.definitions import STATISTICS
from tensortrial.statistics.histogram import histogram
from tensortrial.statistics.single import statistics

TESTS = Path(__file__).parents[2]
RUNS = sorted((TESTS / "golden").glob("format-*/*"))
FORMAT = TESTS.parent / "docs" / "format.md"

_spec = importlib.util.spec_from_file_location("golden_write", TESTS / "golden" / "write.py")
assert _spec is not None
assert _spec.loader is not None
golden: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(golden)


@pytest.fixture(params=RUNS, ids=lambda path: f"{path.parent.name}-{path.name}")
def trial(request: pytest.FixtureRequest) -> Trial:
    return tensortrial.create_trial(request.param)


def test_golden_runs_exist() -> None:
    assert [f"{path.parent.name}/{path.name}" for path in RUNS] == ["format-1/none", "format-1/zstd"]


def saved_steps(rank: int) -> list[int]:
    return [step for step in range(len(golden.MODES)) if not (rank and step == 1)]


def same(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> bool:
    stored = storable(expected)
    return (found.dtype, found.shape, found.tobytes()) == (stored.dtype, stored.shape, stored.tobytes())


def test_every_value(trial: Trial) -> None:
    names = set()
    for rank, worker in enumerate(golden.WORKERS):
        for step in saved_steps(rank):
            for name, value in golden.values_of(step, rank).items():
                found = trial.tensor(name).value(step, worker=worker)
                assert same(found, np.asarray(value)), (name, step, worker)
                names.add(name)
    assert trial.tensor_names() == sorted(names | {"reduced"})


def test_every_statistic(trial: Trial) -> None:
    for rank, worker in enumerate(golden.WORKERS):
        for step in saved_steps(rank):
            weight = golden.values_of(step, rank)["weight"]
            saved = trial.tensor("weight").reduction_values(step, worker=worker)
            found = {f"abs_{name}" if absolute else name: float(value) for (name, absolute), value in saved.items()}
            assert found == pytest.approx(statistics(weight, STATISTICS), nan_ok=True)
            reduced = trial.tensor("reduced").reduction_values(step, worker=worker)
            assert len(reduced) == len(golden.STATISTICS_ONLY["statistics"])
            assert reduced["l2", False] == pytest.approx(np.linalg.norm(weight))
            kept = trial.tensor("weight").histogram(step, worker=worker)
            assert kept is not None
            assert (kept[0].tolist(), kept[1].tolist()) == histogram(weight)


def test_steps_modes_workers_and_collections(trial: Trial) -> None:
    assert trial.steps() == [*range(7)]
    assert [(trial.mode(step), trial.mode_step(step)) for step in range(7)] == [
        (mode, golden.MODES[:step].count(mode)) for step, mode in enumerate(golden.MODES)
    ]
    assert trial.workers() == ["gpu:0/é", "worker_0"]
    assert trial.tensor("loss").workers(1) == ["worker_0"]
    assert trial.loaded_all_steps
    assert trial.collection("reduced").tensor_names == {"reduced"}
    assert trial.tensor_names(collection="weights") == ["weight"]
    assert not trial.damaged


def test_sql(trial: Trial) -> None:
    assert trial.sql("select count(*) from tensors").fetchall() == [(13 * 7 + 2 * (14 + 2 + 6),)]
    assert trial.sql("select distinct saved_at from steps order by 1 limit 1").fetchall()[0][0].year == 2026
    assert trial.sql("select count(*) from tensor_values where name = 'kind/text'").fetchall() == [(2,)]


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("run", RUNS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_the_reader_of_the_specification_reads_them(run: Path, compacted: bool, tmp_path: Path) -> None:
    if compacted:
        run = Path(shutil.copytree(run, tmp_path / "run"))
        done = tensortrial.compact(run, delete_older_than=0)
        assert done.files_after < done.files_before
    (program,) = re.findall(r"```python\n(.*?)```", FORMAT.read_text(), re.DOTALL)
    (tmp_path / "reader.py").write_text(program)
    check = f"""
import sys
sys.path[:0] = [{str(tmp_path)!r}, {str(TESTS)!r}, {str(TESTS / "golden")!r}]
import pickle, reader
assert not [name for name in sys.modules if name.startswith("tensortrial")]
sys.stdout.buffer.write(pickle.dumps(list(reader.read_run({str(run)!r}))))
"""
    printed = subprocess.run([sys.executable, "-c", check], capture_output=True, check=False)
    assert printed.returncode == 0, printed.stderr.decode()
    import pickle

    rows = pickle.loads(printed.stdout)
    found = {(row["worker"], row["global_step"], row["name"]): (row, value) for row, value in rows}
    assert len(found) == len(rows) == 13 * 7 + 2 * (14 + 2 + 6)
    for rank, worker in enumerate(golden.WORKERS):
        for step in saved_steps(rank):
            row, value = found[worker, step, "reduced"]
            assert (value, row["min"]) == (None, golden.values_of(step, rank)["weight"].min())
            for name, expected in golden.values_of(step, rank).items():
                row, value = found[worker, step, name]
                expected = storable(np.asarray(expected))
                assert tuple(row["shape"]) == expected.shape
                assert value == (float(expected.reshape(-1)[0]) if isinstance(value, float) else expected.tobytes()), (
                    name
                )
