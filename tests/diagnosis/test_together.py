"""A diagnosis evaluates many steps together, and finds what rules find at one step after the other."""

from __future__ import annotations

import math
import random
import shutil
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from support.runs import EVAL, TRAIN, Job
from tensortrial import rules
from tensortrial.errors import InsufficientInformationForRuleInvocation, UnavailableError

STATISTICS = ("min", "max", "abs_max", "abs_mean", "l2", "nan_count", "inf_count", "zero_count", "kurtosis")
RULES = ("ExplodingTensor", "GradientNormSpike", "LossSpike", "StatisticAnomaly", "ActivationOutliers")
RULES += ("VanishingGradient", "AllZero", "PrecisionUnderflow", "WeightUpdateRatio")
PARAMETERS = {"AllZero": {"collection_names": "gradients"}}
STEPS = 120


def write(run: Path, seed: int, alternates: bool) -> None:
    """Write a random run: NaN, spikes, missing tensors, two modes, late workers, steps that were saved again.

    If it alternates, no two steps that follow one another have the same tensors.
    """
    rng, chance = np.random.default_rng(seed), random.Random(seed)
    workers, begin, statistics = chance.choice([1, 1, 2]), 0, chance.choice([STATISTICS, STATISTICS, STATISTICS[:5]])
    is_raw, only_training, goes_back = chance.random() < 0.3, chance.random() < 0.5, chance.random() < 0.5
    for session in range(2 if goes_back else 1):
        end = STEPS if session or not goes_back else STEPS // 2
        jobs = [Job(run, f"worker_{rank}", workers, resume=session > 0) for rank in range(workers)]
        if session:
            begin = jobs[0].next_global_step
        for step in range(begin, end):
            mode = EVAL if not only_training and step % 7 == 6 else TRAIN
            for rank, job in enumerate(jobs):
                values = tensors(rng, chance, step, {"statistics": statistics, "raw": is_raw})
                if alternates:
                    values[f"empty/{step % 2}"] = ({"statistics": statistics, "raw": is_raw}, np.zeros(0))
                if rank and chance.random() < 0.1:
                    job.skip(mode)
                else:
                    job.step(values, mode)
                if chance.random() < 0.2:
                    job.flush()
        for job in jobs[: 1 if chance.random() < 0.2 else None]:
            job.close()
        for job in jobs:
            job.flush()


def tensors(rng: np.random.Generator, chance: random.Random, step: int, plan: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"loss": ({"collections": ("losses",)}, 1 / (1 + step) + 50 * (chance.random() < 0.03))}
    for layer in range(4):
        scale = chance.choice([1.0] * 30 + [0.0, 1e-9, 1e3, math.nan, math.inf])
        dtype = np.float16 if layer == 3 else np.float32
        gradient = np.clip(rng.normal(size=(3, 4)) * scale, -1e4, 1e4).astype(dtype)
        weight = (rng.normal(1, 1e-3, (3, 4)) * chance.choice([1.0] * 40 + [30.0, math.nan])).astype(np.float32)
        output = rng.normal(size=60) ** chance.choice([1] * 20 + [25])
        found |= {
            f"gradient/{layer}": ({**plan, "collections": ("gradients",)}, gradient),
            f"{layer}.weight": ({**plan, "collections": ("weights",)}, weight),
            f"{layer}_output_0": (plan, output),
        }
    if chance.random() < 0.05:
        del found[chance.choice([*found])]
    return found


@pytest.fixture(scope="module", params=range(8))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("together")
    for name, alternates in (("even", False), ("alternating", True)):
        write(folder / name, request.param, alternates)
    return folder / "even", folder / "alternating"


@pytest.fixture(scope="module")
def even(pair: tuple[Path, Path]) -> tensortrial.Diagnosis:
    """Return the diagnosis of the first run, before a test compacts it."""
    return tensortrial.diagnose(pair[0])


def test_a_diagnosis_does_not_depend_on_which_steps_have_the_same_tensors(
    pair: tuple[Path, Path], even: tensortrial.Diagnosis
) -> None:
    alternating = tensortrial.diagnose(pair[1])
    assert even.problems == alternating.problems
    assert even.problems
    assert even.checked == alternating.checked
    assert even.unchecked == alternating.unchecked


class Odd(rules.Rule):
    """Fires at every odd step."""

    def invoke_at_step(self, step: int) -> bool:
        return step % 2 == 1


def step_by_step(trial: tensortrial.Trial) -> list[rules.Finding]:
    """Return what rules find at one step after the other."""
    made, found = made_rules(trial), list[rules.Finding]()
    for step in trial.steps():
        for rule in made:
            with suppress(UnavailableError, InsufficientInformationForRuleInvocation):
                found += rule.evaluate(step)
    return found + [finding for rule in made for finding in rule.evaluate_at_end()]


def made_rules(trial: tensortrial.Trial) -> list[rules.Rule]:
    return [*(rules.make_rule(name, trial, **PARAMETERS.get(name, {})) for name in RULES), Odd(trial)]


@pytest.fixture(scope="module")
def expected(pair: tuple[Path, Path]) -> list[rules.Finding]:
    """Return what rules find step by step in the first run, before a test compacts it."""
    return step_by_step(tensortrial.create_trial(pair[0]))


def without_times(findings: list[rules.Finding]) -> list[str]:
    """Return all of findings but the times at which they were made."""
    return [repr(replace(finding, found_at=datetime.min)) for finding in findings]


def test_watch_finds_what_rules_find_step_by_step(pair: tuple[Path, Path], expected: list[rules.Finding]) -> None:
    trial = tensortrial.create_trial(pair[0])
    assert len({finding.rule for finding in expected}) > 4
    found = [each for each in rules.watch(trial, made_rules(trial), record=False, timeout=0.1) if not each.failed]
    assert without_times(found) == without_times(expected)


def test_watch_goes_on_if_the_run_is_compacted_and_refreshed_meanwhile(
    pair: tuple[Path, Path], expected: list[rules.Finding], tmp_path: Path
) -> None:
    run = shutil.copytree(pair[0], tmp_path / "run")
    trial, found = tensortrial.create_trial(run), list[rules.Finding]()
    for finding in rules.watch(trial, made_rules(trial), record=False, timeout=0.1):
        if len(found) == 3:
            assert tensortrial.compact(run, delete_older_than=0)
            trial.refresh()
        found += [] if finding.failed else [finding]
    assert without_times(found) == without_times(expected)


@pytest.mark.parametrize("compacted", [False, True])
def test_a_diagnosis_finds_what_rules_find_step_by_step(
    pair: tuple[Path, Path], expected: list[rules.Finding], even: tensortrial.Diagnosis, compacted: bool
) -> None:
    diagnosis = even
    if compacted:
        tensortrial.compact(pair[0])
        diagnosis = tensortrial.diagnose(pair[0])
    found = [finding for finding in expected if finding.rule in RULES]
    last = {(each.rule, each.tensor, each.worker): each.step for each in found}
    first = {(each.rule, each.tensor, each.worker): each for each in reversed(found)}
    for problem in diagnosis.problems:
        if problem.rule in RULES:
            key = problem.rule, problem.tensor, problem.worker
            assert (problem.step, problem.mode) == (first[key].step, first[key].mode)
            assert problem.sentence.startswith(first[key].sentence)
            assert problem.last_step == last[key]
    begun = {rule for rule, _, _ in first}
    sentences = " ".join(each for problem in diagnosis.problems for each in (problem.rule, *problem.explains))
    assert {rule for rule in begun if rule in sentences} == begun


def test_a_diagnosis_finds_what_happens_in_workers_whose_modes_differ_at_a_step(tmp_path: Path) -> None:
    training, evaluating = (Job(tmp_path / "run", f"worker_{rank}", 2) for rank in range(2))
    for step in range(20):
        weight = np.full(4, 1 + step, np.float32)
        training.step({"w": weight}, TRAIN)
        evaluating.step({"w": weight * (math.nan if step == 10 else 1)}, EVAL)
    for job in (training, evaluating):
        job.close()
    found = [(each.step, each.worker) for each in tensortrial.diagnose(tmp_path / "run").problems if "NaN" in str(each)]
    assert found == [(10, "worker_1")]
