"""Rules that watch a run: 36 built-in ones, and your own.

    from tensortrial.rules import VanishingGradient, invoke_rule
    findings = invoke_rule(VanishingGradient(trial, threshold=1e-6))

docs/rules.md describes each of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .builtin.activations import DeadFeatures, DeadRelu, SaturatedActivation
    from .builtin.classification import ClassImbalance, Confusion, WrongLossInput
    from .builtin.gradients import GradientNormSpike, OutputBiasGradient, VanishingGradient
    from .builtin.health import (
        ActivationOutliers,
        AttentionLogitGrowth,
        PrecisionUnderflow,
        RouterCollapse,
        UpdateRatioOutOfRange,
    )
    from .builtin.inputs import CheckInputImages, NLPSequenceRatio
    from .builtin.losses import LossNotDecreasing, LossSpike, Overfit, Overtraining
    from .builtin.past import StatisticAnomaly
    from .builtin.replicas import ReplicaDivergence, SilentCorruption
    from .builtin.runs import RankDivergence, SimilarAcrossRuns
    from .builtin.stalled import StalledTraining
    from .builtin.stalled import StalledTraining as StalledTrainingRule
    from .builtin.tensors import AllZero, ExplodingTensor, LowPrecisionSaturation, TensorVariance, UnchangedTensor
    from .builtin.trees import FeatureImportanceOverweight, TreeDepth
    from .builtin.weights import PoorWeightInitialization, UntrainedParameter, WeightUpdateRatio
    from .finding import Finding
    from .registry import make_rule
    from .req_tensors import RequiredTensors
    from .rule import Rule
    from .running import invoke_rule, watch

_MODULE_OF = {
    "Finding": "finding",
    "RequiredTensors": "req_tensors",
    "Rule": "rule",
    "invoke_rule": "running",
    "make_rule": "registry",
    "watch": "running",
}

__all__ = [
    "ActivationOutliers",
    "AllZero",
    "AttentionLogitGrowth",
    "CheckInputImages",
    "ClassImbalance",
    "Confusion",
    "DeadFeatures",
    "DeadRelu",
    "ExplodingTensor",
    "FeatureImportanceOverweight",
    "Finding",
    "GradientNormSpike",
    "LossNotDecreasing",
    "LossSpike",
    "LowPrecisionSaturation",
    "NLPSequenceRatio",
    "OutputBiasGradient",
    "Overfit",
    "Overtraining",
    "PoorWeightInitialization",
    "PrecisionUnderflow",
    "RankDivergence",
    "ReplicaDivergence",
    "RequiredTensors",
    "RouterCollapse",
    "Rule",
    "SaturatedActivation",
    "SilentCorruption",
    "SimilarAcrossRuns",
    "StalledTraining",
    "StalledTrainingRule",
    "StatisticAnomaly",
    "TensorVariance",
    "TreeDepth",
    "UnchangedTensor",
    "UntrainedParameter",
    "UpdateRatioOutOfRange",
    "VanishingGradient",
    "WeightUpdateRatio",
    "WrongLossInput",
    "invoke_rule",
    "make_rule",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _MODULE_OF:
        return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    return import_module(".registry", __name__).rule_class(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
