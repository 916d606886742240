"""The built-in rules that compare runs or workers, on runs whose values are known."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from support.rule_runs import GRADIENTS, Write, fired
from support.runs import Job
from tensortrial import rules
from tensortrial.errors import InsufficientInformationForRuleInvocation, InvalidRuleParameter
from tensortrial.rules import invoke_rule


def test_similar_across_runs(write: Write) -> None:
    base = write([{"a": np.ones(3), "b": np.ones(2)}, {"a": np.ones(3)}, {"a": np.ones(3), "c": np.ones(1)}])
    other = write(
        [{"a": np.ones(3), "b": np.ones(2)}, {"a": np.full(3, 1.1)}, {"a": np.ones((3, 1))}, {}], name="other"
    )
    found = invoke_rule(rules.SimilarAcrossRuns(base, other))
    assert [(f.step, f.tensor) for f in found] == [(1, "a"), (2, "c"), (2, "a")]
    assert found[0].observed == pytest.approx(0.1)
    assert "c is in this run only" in found[1].sentence
    assert fired(invoke_rule(rules.SimilarAcrossRuns(base, other_trials=[other], tensor_regex="c"))) == [2]
    assert len(rules.SimilarAcrossRuns(base, other_trials=other.path).other_trials) == 1
    with pytest.raises(InvalidRuleParameter, match="exactly one other run"):
        rules.SimilarAcrossRuns(base)


def test_similar_across_runs_by_statistics(write: Write) -> None:
    plan = {"raw": False, "statistics": ("mean", "l2")}
    base = write([{"a": np.ones(3)}, {"a": np.ones(3)}], **plan)
    other = write([{"a": np.ones(3)}, {"a": np.full(3, 2.0)}], name="other", **plan)
    (finding,) = invoke_rule(rules.SimilarAcrossRuns(base, other))
    assert finding.sentence == "a differs from the other run: its mean is 1 here and 2 there"


def write_workers(folder: Path, values: dict[str, float]) -> tensortrial.Trial:
    """Write a run with one step, in which each worker saves its own value."""
    for worker, value in values.items():
        with Job(folder, worker, len(values)) as job:
            job.step({"a": np.full(3, value)})
    return tensortrial.create_trial(folder)


def test_similar_across_runs_compares_each_worker_with_its_own(tmp_path: Path) -> None:
    base = write_workers(tmp_path / "base", {"worker_0": 1.0, "worker_1": 2.0})
    same = write_workers(tmp_path / "same", {"worker_0": 1.0, "worker_1": 2.0})
    other = write_workers(tmp_path / "other", {"worker_0": 1.0, "worker_1": 3.0})
    renamed = write_workers(tmp_path / "renamed", {"rank_0": 1.0, "rank_1": 4.0})
    assert not invoke_rule(rules.SimilarAcrossRuns(base, same))
    (finding,) = invoke_rule(rules.SimilarAcrossRuns(base, other))
    assert (finding.worker, finding.observed) == ("worker_1", 1.0)
    (finding,) = invoke_rule(rules.SimilarAcrossRuns(base, renamed))
    assert (finding.worker, finding.observed) == ("worker_1", 2.0)


def test_rank_divergence(tmp_path: Path) -> None:
    plan = {"raw": False, "statistics": ("l2",)}
    jobs = [Job(tmp_path / "run", f"worker_{rank}", 3) for rank in range(3)]
    for step in range(2):
        for rank, job in enumerate(jobs):
            weight = np.ones(4) * (1.1 if (rank, step) == (1, 1) else 1)
            gradient = np.ones(4) * (100 if (rank, step) == (2, 1) else 1 + rank)
            job.step({"w": ({**plan, "collections": ("weights",)}, weight), "g": ({**plan, **GRADIENTS}, gradient)})
    for job in jobs:
        job.close()
    found = invoke_rule(rules.RankDivergence(tensortrial.create_trial(tmp_path / "run")))
    assert [(f.step, f.tensor, f.worker) for f in found] == [(1, "w", "worker_1"), (1, "g", "worker_2")]
    nothing_finite = write_workers(tmp_path / "nan", {"worker_0": math.nan, "worker_1": math.nan})
    assert invoke_rule(rules.RankDivergence(nothing_finite, collection_names="default")) == []


def write_replicas(folder: Path, changed: float, **plan: Any) -> tensortrial.Trial:
    """Write a run of three workers whose weights are equal, but for the last one's at step 2."""
    jobs = [Job(folder, f"worker_{rank}", 3) for rank in range(3)]
    for step in range(4):
        for rank, job in enumerate(jobs):
            weight = np.array([1.0, step, changed if (rank, step) == (2, 2) else 0.0])
            job.step({"w": weight, "own": np.array([rank, 1.0])}, collections=("weights",), **plan)
    for job in jobs:
        job.close()
    return tensortrial.create_trial(folder)


@pytest.mark.parametrize("plan", [{"raw": False, "digest": True}, {"raw": True}], ids=["digests", "values"])
@pytest.mark.parametrize("changed", [-0.0, 5e-324, float("nan")])
def test_replica_divergence(tmp_path: Path, changed: float, plan: dict[str, Any]) -> None:
    trial = write_replicas(tmp_path / "run", changed, **plan)
    found = invoke_rule(rules.ReplicaDivergence(trial, collection_names="", tensor_regex="^w$"))
    assert [(f.step, f.tensor, f.worker) for f in found] == [(2, "w", "worker_2")]
    assert found[0].sentence == "w of worker_2 does not have the bits that 2 of 3 workers have"


def test_replica_divergence_needs_digests_or_values(tmp_path: Path) -> None:
    trial = write_replicas(tmp_path / "run", 0.0, raw=False, statistics=("l2",))
    with pytest.raises(InsufficientInformationForRuleInvocation, match=r"ReductionConfig\(digest=True\)"):
        invoke_rule(rules.ReplicaDivergence(trial))
