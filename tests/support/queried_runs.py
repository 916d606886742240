"""Two small runs for the named queries, and what each query must answer, reckoned from the values alone.

`left` has two workers, of which the second is late, and a loss that spikes; `right` has one, whose values end in NaN.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from support.runs import EPOCH, EVAL, TRAIN, Job
from tensortrial.format.record import Plan, Record, Step
from tensortrial.mode import ModeKeys

STEPS = 12
WORKERS = {"left": 2, "right": 1}
_LATE = {"worker_0": 0, "worker_1": 250_000_000}
_SCALE = {"left": 1.0, "right": 2.0}
_OF_OUTPUTS = ("min", "max", "rms", "kurtosis", "zero_count")

Rows = list[tuple[Any, ...]]


class Saved(NamedTuple):
    """A tensor that was saved, and the number that is asked of it."""

    run: str
    worker: str
    mode: str
    mode_step: int
    global_step: int
    name: str
    value: np.ndarray[Any, Any]

    @property
    def norm(self) -> float:
        return float(np.sqrt((self.value.astype(np.float64) ** 2).sum()))


def write_runs(folder: Path) -> list[Saved]:
    """Write both runs, and give all that is in them."""
    saved: list[Saved] = []
    for run, count in WORKERS.items():
        jobs = [Job(folder / run, f"worker_{i}", count) for i in range(count)]
        for _ in range(STEPS):
            for number, job in enumerate(jobs):
                step = job.begin(EVAL if job.next_global_step % 4 == 3 else TRAIN)
                worker = f"worker_{number}"
                records = list(_records(run, worker, step))
                job.writer.put(step, records, closes=True)
                key = (run, worker, step.mode.name, step.mode_step, step.global_step)
                saved += [Saved(*key, record.plan.name, np.asarray(record.value)) for record in records]
        for job in jobs:
            job.close()
    return saved


def _records(run: str, worker: str, step: Step) -> Iterable[Record]:
    number, scale = step.global_step, _SCALE[run]
    time = EPOCH + number * 1_000_000_000 + _LATE[worker]
    loss = scale / (1 + number) * (50 if (run, number) == ("left", 8) else 1)
    dead = run == "left" and number >= 2
    norm = ("l2",)
    values: list[tuple[Plan, Any]] = [
        (Plan("loss", ("losses",), True), math.nan if (run, number) == ("right", 10) else loss),
        (Plan("net.w", ("weights",), True, norm), np.full(4, scale * (number + 1) + 10 * (number >= 5), np.float32)),
        (Plan("relu_output_0", ("outputs",), False, ("abs_max",)), np.full(3, 0.0 if dead else 1.0)),
        (Plan("tanh_output_0", ("outputs",), False, _OF_OUTPUTS), np.array([-0.5, 0.25 * number])),
        (
            Plan("checked", (), False, ("nan_count", "inf_count")),
            np.array([1, math.inf, math.nan if (run, number) == ("right", 9) else math.inf])
            if number == 9
            else np.ones(3),
        ),
    ]
    # A copy of what all workers hold, which the second one loses.
    lost = 0.125 * number if worker == "worker_1" and number >= 7 else 0.0
    values.append((Plan("copied", ("copies",), False, norm), np.full(4, 1.0 + lost)))
    if step.mode is TRAIN:
        gradient = np.full(4, scale / 2)
        values.append((Plan("gradient/net.w", ("gradients",), False, norm, parameter="net.w"), gradient))
        values.append((Plan("update_ratio/net.w", ("updates",), True), 0.001 * (number + 1)))
    return [Record(plan, value, time) for plan, value in values]


def answers(saved: list[Saved]) -> dict[str, tuple[dict[str, Any], Rows]]:
    """For each query: parameters, and the rows that it must give."""
    return {name: reckon(saved) for name, reckon in _RECKONED.items()}


_RECKONED: dict[str, Callable[[list[Saved]], tuple[dict[str, Any], Rows]]] = {}


def _of(reckon: Callable[[list[Saved]], tuple[dict[str, Any], Rows]]) -> None:
    _RECKONED[reckon.__name__.strip("_")] = reckon


def _named(saved: list[Saved], name: str) -> list[Saved]:
    return [each for each in saved if each.name == name]


@_of
def _gradient_norms(saved: list[Saved]) -> tuple[dict[str, Any], Rows]:
    rows = [(s.run, s.name, s.worker, s.mode, s.mode_step, s.norm) for s in _named(saved, "gradient/net.w")]
    return {}, sorted(rows)


@_of
def _weight_changes(saved: list[Saved]) -> tuple[dict[str, Any], Rows]:
    rows = []
    for worker in ("worker_0", "worker_1"):
        line = [s for s in _named(saved, "net.w") if (s.run, s.worker) == ("left", worker)]
        for before, s in pairwise(line):
            change = s.norm - before.norm
            rows.append((s.run, s.name, worker, s.mode, s.mode_step, s.norm, before.norm, change, s.global_step))
    rows.sort(key=lambda row: (-abs(row[7]), row[2], row[8]))
    return {"runs": "le%", "limit": 3}, [row[:8] for row in rows[:3]]


@_of
def _losses(saved: list[Saved]) -> tuple[dict[str, Any], Rows]:
    groups = defaultdict(list)
    for s in _named(saved, "loss"):
        groups[s.run, s.mode, s.name, s.mode_step].append(float(s.value))
    return {}, [(*key, float(np.mean(values)), len(values)) for key, values in sorted(groups.items())]


@_of
def _first_non_finite(saved: list[Saved]) -> tuple[dict[str, Any], Rows]:
    return {}, [
        ("left", 1, "checked", "worker_0", "TRAIN", 7, 9, 0, 2),
        ("right", 1, "checked", "worker_0", "TRAIN", 7, 9, 1, 1),
        ("right", 2, "loss", "worker_0", "TRAIN", 8, 10, None, None),
    ]


@_of
def _dead_layers(saved: list[Saved]) -> tuple[dict[str, Any], Rows]:
    return {}, [("left", "relu_output_0", 2 * STEPS, 2 * (STEPS - 2), STEPS - 1, (STEPS - 2) / STEPS)]


@_of
def _slowest_workers(saved: list[Saved]) -> tuple[dict[str, Any], Rows]:
    return {}, [("left", "worker_1", STEPS, STEPS, 0.25), ("left", "worker_0", STEPS, 0, 0.0)]


@_of
def _step_times(saved: list[Saved]) -> tuple[dict[str, Any], Rows]:
    evals = len(range(3, STEPS, 4))
    counts = {"EVAL": evals, "TRAIN": STEPS - 1 - evals}
    workers = [("left", "worker_0"), ("left", "worker_1"), ("right", "worker_0")]
    return {}, [(*worker, mode, count, 1.0, 1.0) for worker in workers for mode, count in counts.items()]


@_of
def _compare_runs(saved: list[Saved]) -> tuple[dict[str, Any], Rows]:
    values: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for s in _named(saved, "loss"):
        values[s.mode, s.mode_step][s.run] = float(s.value)
    rows = [("loss", *key, of["left"], of["right"], of["right"] - of["left"]) for key, of in sorted(values.items())]
    return {"left": "left", "right": "right", "names": "loss"}, rows


@_of
def _best_runs(saved: list[Saved]) -> tuple[dict[str, Any], Rows]:
    best = {}
    for s in _named(saved, "loss"):
        if s.mode == "EVAL" and (s.run not in best or float(s.value) < float(best[s.run].value)):
            best[s.run] = s
    rows = [(s.run, float(s.value), s.mode, s.mode_step, s.worker) for s in best.values()]
    return {"mode": "EVAL"}, sorted(rows, key=lambda row: row[1])


@_of
def _update_ratios(saved: list[Saved]) -> tuple[dict[str, Any], Rows]:
    gradients = {(s.run, s.worker, s.global_step): s.norm for s in _named(saved, "gradient/net.w")}
    rows = []
    for s in _named(saved, "net.w"):
        if norm := gradients.get((s.run, s.worker, s.global_step)):
            rows.append((s.run, s.name, s.worker, s.mode, s.mode_step, s.norm, norm, norm / s.norm))
    return {}, sorted(rows)


@_of
def _parameter_health(saved: list[Saved]) -> tuple[dict[str, Any], Rows]:
    rows = []
    for s in _named(saved, "net.w"):
        if s.mode == "TRAIN":
            gradient = _SCALE[s.run]  # the norm of four halves of it
            rows.append((s.run, s.name, s.worker, s.mode, s.mode_step, s.norm, gradient, 0.001 * (s.global_step + 1)))
    return {}, sorted(rows)


@_of
def _activation_health(saved: list[Saved]) -> tuple[dict[str, Any], Rows]:
    rows = []
    for s in _named(saved, "tanh_output_0"):
        zeros = float(np.mean(s.value == 0))
        # Of two different numbers, both are as far from the mean as the deviation.
        rows.append((s.run, s.name, s.worker, s.mode, s.mode_step, s.norm / math.sqrt(2), 1.0, zeros))
    return {"runs": "left"}, sorted(row for row in rows if row[0] == "left")


@_of
def _spike_scores(saved: list[Saved]) -> tuple[dict[str, Any], Rows]:
    rows = []
    for worker in ("worker_0", "worker_1"):
        line = [s for s in _named(saved, "loss") if (s.run, s.worker, s.mode) == ("left", worker, "TRAIN")]
        values = [float(s.value) for s in line]
        scores = []
        for at in range(4, len(line)):
            before = values[:at]
            scores.append((abs(values[at] - np.mean(before)) / np.std(before, ddof=1), line[at].mode_step))
        worst, step = max(scores)
        spikes = sum(score >= 3 for score, _ in scores)
        rows.append(("left", "loss", worker, "TRAIN", len(scores), spikes, spikes / len(scores), worst, step))
    return {"runs": "left", "before": 4, "deviations": 3}, rows


@_of
def _loss_spikes(saved: list[Saved]) -> tuple[dict[str, Any], Rows]:
    rows = []
    for worker in ("worker_0", "worker_1"):
        line = [s for s in _named(saved, "loss") if (s.run, s.worker, s.mode) == ("left", worker, "TRAIN")]
        at = next(i for i, s in enumerate(line) if s.global_step == 8)
        before = float(np.mean([float(s.value) for s in line[:at]]))
        rows.append(("left", "loss", worker, "TRAIN", line[at].mode_step, float(line[at].value), before))
    return {"factor": 3, "runs": "left"}, rows


@_of
def _worker_divergence(saved: list[Saved]) -> tuple[dict[str, Any], Rows]:
    norms: dict[int, dict[str, float]] = defaultdict(dict)
    for s in _named(saved, "copied"):
        if s.run == "left":
            norms[s.global_step][s.worker] = s.norm
    spreads = {
        step: 1 - of["worker_0"] / of["worker_1"] for step, of in norms.items() if of["worker_0"] != of["worker_1"]
    }
    return {"collection": "copies"}, [("left", "copied", len(spreads), min(spreads), max(spreads.values()))]


@_of
def _storage_by_tensor(saved: list[Saved]) -> tuple[dict[str, Any], Rows]:
    return {"runs": "left", "limit": 1}, [("left", "net.w", STEPS, 2 * STEPS, 2 * STEPS * 16, STEPS - 1)]


def same_rows(found: Iterable[Iterable[Any]], expected: Rows) -> bool:
    """Whether rows are the same, numbers to 12 digits, and NaN is NaN."""
    return [tuple(map(_rounded, row)) for row in found] == [tuple(map(_rounded, row)) for row in expected]


def _rounded(value: Any) -> Any:
    if value is None or isinstance(value, str | bool | ModeKeys):
        return value
    number = float(value)
    return "nan" if math.isnan(number) else f"{number:.12g}"
