"""Rules that evaluate all tensors of a step at once find what they find in each tensor by itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from support.runs import EVAL, TRAIN, Job
from tensortrial import rules
from tensortrial.rules import Finding, Rule

STATISTICS = ("min", "max", "abs_max", "variance", "nan_count", "inf_count", "zero_count", "subnormal_count")
PLANS: list[dict[str, Any]] = [
    {},
    {"statistics": STATISTICS},
    {"statistics": ("abs_max", "variance")},
    {"statistics": ("l2",)},
    {"statistics": ("min",), "histogram": True},
]
VALUES: list[Callable[[np.random.Generator, int], Any]] = [
    lambda rng, step: rng.normal(size=4),
    lambda rng, step: np.full((2, 2), step // 4),
    lambda rng, step: np.array([1.0, rng.choice([0.0, math.nan, math.inf, -math.inf])]),
    lambda rng, step: np.array([1.0, 0.0, 0.0, 1e-7], np.float16) * (step % 3),
    lambda rng, step: np.ones(rng.integers(0, 3)),
    lambda rng, step: np.array(["text", "more"]),
]
MAKERS: list[tuple[type[Rule], dict[str, Any]]] = [
    (rules.ExplodingTensor, {}),
    (rules.ExplodingTensor, {"only_nan": True}),
    (rules.TensorVariance, {"max_threshold": 1.0, "min_threshold": 0.1}),
    (rules.AllZero, {"threshold": 50}),
    (rules.LowPrecisionSaturation, {}),
    (rules.PrecisionUnderflow, {}),
    (rules.UnchangedTensor, {"num_steps": 2, "atol": 1e-3}),
]


@pytest.fixture(scope="module", params=[1, 2])
def trial(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tensortrial.Trial:
    """Tensors of each kind by each plan, some missing at any step, of workers that are not always in step."""
    folder, rng = tmp_path_factory.mktemp("columns"), np.random.default_rng(request.param)
    for part in range(2):
        _write(folder / "run", rng, range(8 * part, 8 * part + 8), resume=part > 0)
    return tensortrial.create_trial(folder / "run")


def _write(run: Path, rng: np.random.Generator, steps: range, resume: bool) -> None:
    jobs = [Job(run, f"worker_{rank}", 2, resume=resume) for rank in range(2)]
    for step in steps:
        for job in jobs:
            tensors = [(f"{kind}/{plan}", VALUES[kind], PLANS[plan]) for kind in range(6) for plan in range(5)]
            kept = [each for each in tensors if rng.random() < 0.8]
            job.step(
                {name: (plan, value(rng, step)) for name, value, plan in kept},
                EVAL if step % 5 == 4 or rng.random() < 0.1 else TRAIN,
            )
            if rng.random() < 0.5:
                job.flush()
    for job in jobs:
        job.close()


@pytest.mark.parametrize(("make", "parameters"), MAKERS)
def test_all_tensors_at_once_are_judged_as_each_by_itself(
    trial: tensortrial.Trial, make: Callable[..., Rule], parameters: dict[str, Any]
) -> None:
    together = _found(make(trial, tensor_regex=".", **parameters))
    alone = [
        each for name in trial.tensor_names() for each in _found(make(trial, tensor_regex=f"^{name}$", **parameters))
    ]
    assert sorted(together) == sorted(alone)
    assert [step for step, *_ in together] == sorted(step for step, *_ in together)
    assert len({tensor for _, tensor, *_ in together}) > 1


def _found(rule: Rule) -> list[tuple[int, str, str, str, str]]:
    findings = rules.watch(rule.base_trial, [rule], record=False)
    return [_comparable(each) for each in findings]


def _comparable(finding: Finding) -> tuple[int, str, str, str, str]:
    assert not finding.failed, finding
    return finding.step or 0, finding.tensor or "", finding.worker or "", repr(finding.observed), finding.sentence
