"""Uses everything that reads a run on a damaged one, and compares what comes back with what was saved."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import numpy as np
from click.testing import CliRunner

import tensortrial
from tensortrial.cli import main
from tensortrial.errors import TensorTrialError
from tensortrial.maintenance.compaction import compact
from tensortrial.mode import ModeKeys

Truth = dict[tuple[str, int, str], np.ndarray]
"""What was saved: by name, global step and worker."""

QUERIES = [
    "select * from tensors",
    "select count(*), min(global_step), max(saved_at) from tensors where name = 'w'",
    "select * from scalars",
    "select * from reductions",
    "select * from steps",
    "select * from collections",
    "select name, global_step, octet_length(value) from tensor_values",
    "select * from findings",
]
RUNS_QUERIES = [
    "select run, name, count(*) from tensors group by all",
    "select * from runs",
    "select run, count(value) from tensor_values group by run",
]
COMMANDS = [
    ["info"],
    ["names"],
    ["steps"],
    ["sql", "select name, count(*) from tensors group by name"],
    ["sql", "--format", "json", "select * from steps"],
]


@dataclass
class Report:
    """What one case showed."""

    foreign: list[str] = field(default_factory=list)
    """Tracebacks of exceptions of other projects."""
    wrong: list[str] = field(default_factory=list)
    """Values that differ from what was saved, and that nothing reported."""
    compared: int = 0
    named: int = 0
    """How often an error of this project was raised."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        try:
            yield
        except TensorTrialError:
            self.named += 1
        except Exception:  # noqa: BLE001 - reported as foreign
            self.foreign.append(traceback.format_exc())


def read_truth(run: Path) -> Truth:
    with tensortrial.create_trial(run) as trial:
        return {
            (name, step, worker): value
            for name in trial.tensor_names()
            for worker in trial.workers()
            for step, value in trial.tensor(name).values(worker=worker).items()
        }


def use(run: Path, good: Path, truth: Truth, rng: Random) -> Report:
    """Read a damaged run in many ways, some of which `rng` chooses, compact it, and read it again."""
    report = Report()
    _read(run, truth, report, rng)
    with report.watching(), tensortrial.open_runs([run, good]) as runs:
        for query in RUNS_QUERIES:
            with report.watching():
                _take(runs.sql(query), report)
        assert good.name in runs.names
    for command, *arguments in rng.sample(COMMANDS, 1):
        done = CliRunner().invoke(main, [command, str(run), *arguments])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            report.foreign.append("".join(traceback.format_exception(done.exception)))
    with report.watching():
        compact(run, delete_older_than=0)
    _read(run, truth, report, rng)
    return report


def _read(run: Path, truth: Truth, report: Report, rng: Random) -> None:
    with report.watching(), tensortrial.create_trial(run, timeout=0.0) as trial:
        for question in _questions(trial):
            with report.watching():
                question()
        for query in rng.sample(QUERIES, 3):
            with report.watching():
                _take(trial.sql(query), report)
        names: list[str] = []
        with report.watching():
            names = trial.tensor_names()
        for name in names:
            with report.watching():
                _read_tensor(trial, name, truth, report)
        for worker in (None, "worker_0", "worker_1"):
            with report.watching():
                for name, values in trial.values(names, worker=worker).items():
                    _compare(name, values, worker, truth, report)


def _take(answer: Any, report: Report) -> None:
    """Compute an answer. A plain relation of DuckDB raises errors of its own when its rows are taken."""
    try:
        answer.fetchall()
    except (duckdb.Error, UnicodeDecodeError):
        if not isinstance(answer, duckdb.DuckDBPyRelation):
            raise
        report.named += 1


def _questions(trial: tensortrial.Trial) -> list[Callable[[], Any]]:
    return [
        lambda: trial.modes(),
        lambda: trial.workers(),
        lambda: trial.num_workers,
        lambda: trial.collections(),
        lambda: trial.damaged,
        lambda: trial.loaded_all_steps,
        lambda: trial.late_workers(),
        lambda: [trial.steps(mode, show) for mode in ModeKeys for show in (False, True)],
        lambda: [trial.tensor_names(step=step) for step in trial.steps()],
        lambda: [trial.mode_step(step) for step in trial.steps()],
        lambda: trial.tensor_names(collection="weights"),
        lambda: trial.inputs(0),
        lambda: trial.has_passed_step(3),
        lambda: trial.wait_for_steps([0, 2], timeout=0.1),
    ]


def _read_tensor(trial: tensortrial.Trial, name: str, truth: Truth, report: Report) -> None:
    tensor = trial.tensor(name)
    for each in (tensor.steps, tensor.shapes, lambda: tensor.steps(ModeKeys.TRAIN), lambda: tensor.prev_steps(3, 2)):
        with report.watching():
            each()
    for step in tensor.steps(show_incomplete_steps=True)[:8]:
        for query in (tensor.shape, tensor.histogram, tensor.reduction_values, tensor.workers):
            with report.watching():
                query(step)
        with report.watching():
            tensor.reduction_value(step, "mean")
        with report.watching():
            _compare(name, {step: tensor.value(step)}, None, truth, report)


def _compare(name: str, values: dict[int, np.ndarray], worker: str | None, truth: Truth, report: Report) -> None:
    for step, value in values.items():
        report.compared += 1
        # Without a worker it is the first one that saved it.
        saved = next(
            (truth[key] for who in (worker, "worker_0", "worker_1") if (key := (name, step, who)) in truth), None
        )
        if (
            saved is None
            or saved.dtype != value.dtype
            or saved.shape != value.shape
            or saved.tobytes() != value.tobytes()
        ):
            report.wrong.append(f"{name!r} at step {step} of worker {worker}: {value!r:.100}, saved was {saved!r:.100}")
