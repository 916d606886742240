"""Rules that watch a run: 25 built-in ones, and those that you write.

    from tensortrial.rules import VanishingGradient, invoke_rule
    findings = invoke_rule(VanishingGradient(trial, threshold=1e-6))

docs/rules.md describes each of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .activations import DeadFeatures, DeadRelu, SaturatedActivation
    from .classification import ClassImbalance, Confusion
    from .finding import Finding
    from .gradients import GradientNormSpike, VanishingGradient
    from .inputs import CheckInputImages, NLPSequenceRatio
    from .losses import LossNotDecreasing, LossSpike, Overfit, Overtraining
    from .registry import make_rule
    from .replicas import ReplicaDivergence
    from .req_tensors import RequiredTensors
    from .rule import Rule
    from .running import invoke_rule, watch
    from .runs import RankDivergence, SimilarAcrossRuns
    from .stalled import StalledTraining
    from .stalled import StalledTraining as StalledTrainingRule
    from .tensors import AllZero, ExplodingTensor, LowPrecisionSaturation, TensorVariance, UnchangedTensor
    from .trees import FeatureImportanceOverweight, TreeDepth
    from .weights import PoorWeightInitialization, WeightUpdateRatio

_HOMES = {
    "AllZero": "tensors",
    "CheckInputImages": "inputs",
    "ClassImbalance": "classification",
    "Confusion": "classification",
    "DeadFeatures": "activations",
    "DeadRelu": "activations",
    "ExplodingTensor": "tensors",
    "FeatureImportanceOverweight": "trees",
    "Finding": "finding",
    "GradientNormSpike": "gradients",
    "LossNotDecreasing": "losses",
    "LossSpike": "losses",
    "LowPrecisionSaturation": "tensors",
    "NLPSequenceRatio": "inputs",
    "Overfit": "losses",
    "Overtraining": "losses",
    "PoorWeightInitialization": "weights",
    "RankDivergence": "runs",
    "ReplicaDivergence": "replicas",
    "RequiredTensors": "req_tensors",
    "Rule": "rule",
    "SaturatedActivation": "activations",
    "SimilarAcrossRuns": "runs",
    "StalledTraining": "stalled",
    "StalledTrainingRule": "stalled",
    "TensorVariance": "tensors",
    "TreeDepth": "trees",
    "UnchangedTensor": "tensors",
    "VanishingGradient": "gradients",
    "WeightUpdateRatio": "weights",
    "invoke_rule": "running",
    "make_rule": "registry",
    "watch": "running",
}

__all__ = [
    "AllZero",
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
    "RankDivergence",
    "ReplicaDivergence",
    "RequiredTensors",
    "Rule",
    "SaturatedActivation",
    "SimilarAcrossRuns",
    "StalledTraining",
    "StalledTrainingRule",
    "TensorVariance",
    "TreeDepth",
    "UnchangedTensor",
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
