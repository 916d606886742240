"""Rules that watch a run: 33 built-in ones, and your own.

    from tensortrial.rules import VanishingGradient, invoke_rule
    findings = invoke_rule(VanishingGradient(trial, threshold=1e-6))

docs/rules.md describes each of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .builtin.activations import DeadFeatures, DeadRelu, SaturatedActivation
    from .builtin.classification import ClassImbalance, Confusion
    from .builtin.gradients import GradientNormSpike, VanishingGradient
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
    from .builtin.weights import PoorWeightInitialization, WeightUpdateRatio
    from .finding import Finding
    from .registry import make_rule
    from .req_tensors import RequiredTensors
    from .rule import Rule
    from .running import invoke_rule, watch

_HOMES = {
    "ActivationOutliers": "builtin.health",
    "AllZero": "builtin.tensors",
    "AttentionLogitGrowth": "builtin.health",
    "CheckInputImages": "builtin.inputs",
    "ClassImbalance": "builtin.classification",
    "Confusion": "builtin.classification",
    "DeadFeatures": "builtin.activations",
    "DeadRelu": "builtin.activations",
    "ExplodingTensor": "builtin.tensors",
    "FeatureImportanceOverweight": "builtin.trees",
    "Finding": "finding",
    "GradientNormSpike": "builtin.gradients",
    "LossNotDecreasing": "builtin.losses",
    "LossSpike": "builtin.losses",
    "LowPrecisionSaturation": "builtin.tensors",
    "NLPSequenceRatio": "builtin.inputs",
    "Overfit": "builtin.losses",
    "Overtraining": "builtin.losses",
    "PoorWeightInitialization": "builtin.weights",
    "PrecisionUnderflow": "builtin.health",
    "RankDivergence": "builtin.runs",
    "ReplicaDivergence": "builtin.replicas",
    "RequiredTensors": "req_tensors",
    "RouterCollapse": "builtin.health",
    "Rule": "rule",
    "SaturatedActivation": "builtin.activations",
    "SilentCorruption": "builtin.replicas",
    "SimilarAcrossRuns": "builtin.runs",
    "StalledTraining": "builtin.stalled",
    "StalledTrainingRule": "builtin.stalled",
    "StatisticAnomaly": "builtin.past",
    "TensorVariance": "builtin.tensors",
    "TreeDepth": "builtin.trees",
    "UnchangedTensor": "builtin.tensors",
    "UpdateRatioOutOfRange": "builtin.health",
    "VanishingGradient": "builtin.gradients",
    "WeightUpdateRatio": "builtin.weights",
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
    "UpdateRatioOutOfRange",
    "VanishingGradient",
    "WeightUpdateRatio",
    "invoke_rule",
    "make_rule",
    "watch",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{home}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
