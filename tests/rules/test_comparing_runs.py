"""The built-in rules that compare runs or workers, on runs whose values are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensortrial
from support.rule_runs import GRADIENTS, Write, fired
from support.runs import Job
from tensortrial import rules
from tensortrial.errors import InvalidRuleParameter
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
