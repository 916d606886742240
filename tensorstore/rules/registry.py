"""The built-in rules by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import UnknownRule
from ..read.trial import Trial
from ..suggestions import near_names
from .builtin.activations import DeadFeatures, DeadRelu, SaturatedActivation
from .builtin.base import BuiltinRule
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
from .builtin.tensors import AllZero, ExplodingTensor, LowPrecisionSaturation, TensorVariance, UnchangedTensor
from .builtin.trees import FeatureImportanceOverweight, TreeDepth
from .builtin.weights import PoorWeightInitialization, UntrainedParameter, WeightUpdateRatio

SAGEMAKER: tuple[type[BuiltinRule], ...] = (
    VanishingGradient,
    ExplodingTensor,
    DeadRelu,
    PoorWeightInitialization,
    SaturatedActivation,
    TensorVariance,
    WeightUpdateRatio,
    AllZero,
    UnchangedTensor,
    LossNotDecreasing,
    Overfit,
    Overtraining,
    ClassImbalance,
    Confusion,
    SimilarAcrossRuns,
    StalledTraining,
    CheckInputImages,
    NLPSequenceRatio,
    FeatureImportanceOverweight,
    TreeDepth,
)
OURS: tuple[type[BuiltinRule], ...] = (
    LossSpike,
    GradientNormSpike,
    OutputBiasGradient,
    WrongLossInput,
    StatisticAnomaly,
    RankDivergence,
    ReplicaDivergence,
    SilentCorruption,
    LowPrecisionSaturation,
    DeadFeatures,
    UpdateRatioOutOfRange,
    UntrainedParameter,
    ActivationOutliers,
    PrecisionUnderflow,
    AttentionLogitGrowth,
    RouterCollapse,
)
RULES: Mapping[str, type[BuiltinRule]] = {rule.__name__: rule for rule in (*SAGEMAKER, *OURS)}
ALIASES: Mapping[str, str] = {"StalledTrainingRule": "StalledTraining"}


def rule_class(name: str) -> type[BuiltinRule]:
    """Return the built-in rule of a name.

    Raises:
        UnknownRule: There is no such rule; the message has similar names.
    """
    found = RULES.get(ALIASES.get(name, name))
    if found is None:
        raise UnknownRule(name, near_names(name, (*RULES, *ALIASES)))
    return found


def make_rule(name: str, trial: Trial, /, *, rule_name: str | None = None, **parameters: Any) -> BuiltinRule:
    """Create a built-in rule by its name.

    Args:
        name: Name of the rule, such as "VanishingGradient".
        trial: Trial of the run to check.
        rule_name: Name of its findings; None for the name of the rule.
        parameters: Parameters of the rule.

    Returns:
        The rule.

    Raises:
        UnknownRule: There is no such rule.
        InvalidRuleParameter: The rule has no such parameter, or does not accept its value.
    """
    rule = rule_class(name)(trial, **parameters)
    if rule_name:
        rule.rule_name = rule_name
    return rule
