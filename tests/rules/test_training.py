"""Each rule on a real training job that goes wrong, where it fires, and on its healthy twin, where it stays silent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tensortrial
from tensortrial.rules import invoke_rule, make_rule
from tensortrial.rules.builtin import health
from tensortrial.rules.registry import RULES

Open = Callable[[str], tensortrial.Trial]

# rule, parameters, the job that goes wrong, its healthy twin, what the first finding says
CASES: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("VanishingGradient", {}, "vanishing", "healthy", "gradient/Net_fc0"),
    ("ExplodingTensor", {}, "exploding", "healthy", "holds"),
    ("DeadRelu", {}, "dead relu", "healthy", "relu1_output_0 has 100.0 % dead units"),
    ("PoorWeightInitialization", {}, "unbalanced", "healthy", "times the variance"),
    ("SaturatedActivation", {}, "saturated", "healthy", "tanh_input_0 has 100.0 % saturated nodes"),
    (
        "TensorVariance",
        {"collection_names": "weights", "max_threshold": "0.5"},
        "unbalanced",
        "healthy",
        "Net_fc2.weight",
    ),
    ("WeightUpdateRatio", {}, "frozen", "healthy", "below 1e-08"),
    ("AllZero", {"collection_names": "weights"}, "zero", "healthy", "Net_fc1.weight is 100 % zeros"),
    ("UnchangedTensor", {"collection_names": "weights"}, "frozen", "healthy", "did not change over steps 0, 1, 2"),
    ("LossNotDecreasing", {"num_steps": 20, "mode": "TRAIN"}, "shuffled", "healthy", "CrossEntropyLoss_output_0"),
    ("Overfit", {"patience": 2, "ratio_threshold": "0.5"}, "overfit", "healthy long", "in validation"),
    ("Overtraining", {"delta": "0.0005"}, "shuffled", "healthy long", "training steps"),
    ("ClassImbalance", {}, "imbalanced", "healthy long", "times as many of class 0"),
    ("Confusion", {"min_diag": 0.4, "max_off_diag": 0.5}, "shuffled", "healthy long", "is predicted"),
    ("SimilarAcrossRuns", {"collection_names": "weights"}, "other seed", "same", "differs from the other run"),
    ("CheckInputImages", {}, "not normalized", "healthy", "channel 0 has mean"),
    ("NLPSequenceRatio", {}, "padded", "full", "80.0 % token 0"),
    ("FeatureImportanceOverweight", {}, "one feature", "deep trees", "of the importance"),
    ("TreeDepth", {}, "deep trees", "shallow trees", "above 4"),
    ("LossSpike", {}, "spike", "healthy", "jumped to"),
    ("GradientNormSpike", {}, "spike", "healthy", "the norm of all gradients"),
    ("StatisticAnomaly", {"collection_names": "weights"}, "spike", "healthy", "its own past"),
    ("RankDivergence", {}, "strangers", "replicas", "of 2 workers"),
    ("ReplicaDivergence", {}, "strangers", "replicas", "1 of 2 workers"),
    ("LowPrecisionSaturation", {"collection_names": "gradients"}, "half flushed", "half", "% zeros"),
    ("DeadFeatures", {"threshold": 50}, "dead relu", "healthy", "never active in 10 steps"),
]


def rule_on(job: Open, name: str, trial: tensortrial.Trial, parameters: dict[str, Any], **others: Any) -> Any:
    other = {"other_trials": job("same")} if name == "SimilarAcrossRuns" else {}
    return make_rule(name, trial, **parameters, **other, **others)


@pytest.mark.parametrize(("name", "parameters", "wrong", "twin", "says"), CASES, ids=[case[0] for case in CASES])
def test_a_rule_fires_and_its_healthy_twin_does_not(
    job: Open, name: str, parameters: dict[str, Any], wrong: str, twin: str, says: str
) -> None:
    found = invoke_rule(rule_on(job, name, job(wrong), parameters), record=False)
    assert found
    assert any(says in finding.sentence for finding in found), found[0]
    # Confusion and Overtraining judge what a network has learned: its first steps are skipped.
    start = 60 if twin == "healthy long" else 0
    healthy = rule_on(job, name, job(twin), parameters)
    assert invoke_rule(healthy, start, record=False) == []


def test_every_rule_has_a_case() -> None:
    # Time passes for StalledTraining in test_watching, a processor is faulty for SilentCorruption in test_replay, those
    # on the health of a model train others in test_health, and a learning rate of 0 is there for UntrainedParameter.
    # Trainings for OutputBiasGradient and WrongLossInput are in test_diagnose.
    of_health = {rule.__name__ for rule in vars(health).values() if isinstance(rule, type) and rule.__name__ in RULES}
    assert len(of_health) == 5
    others = {"StalledTraining", "SilentCorruption", "UntrainedParameter", "OutputBiasGradient", "WrongLossInput"}
    assert {case[0] for case in CASES} == set(RULES) - of_health - others
