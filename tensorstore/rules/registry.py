"""The built-in rules by their names."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from ..errors import UnknownRule
from ..read.trial import Trial
from .activations import DeadFeatures, DeadRelu, SaturatedActivation
from .builtin import BuiltinRule
from .classification import ClassImbalance, Confusion
from .gradients import GradientNormSpike, VanishingGradient
from .inputs import CheckInputImages, NLPSequenceRatio
from .losses import LossNotDecreasing, LossSpike, Overfit, Overtraining
from .runs import RankDivergence, SimilarAcrossRuns
from .stalled import StalledTraining
from .tensors import AllZero, ExplodingTensor, LowPrecisionSaturation, TensorVariance, UnchangedTensor
from .trees import FeatureImportanceOverweight, TreeDepth
from .weights import PoorWeightInitialization, WeightUpdateRatio

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
    RankDivergence,
    LowPrecisionSaturation,
    DeadFeatures,
)
RULES: Mapping[str, type[BuiltinRule]] = {rule.__name__: rule for rule in (*SAGEMAKER, *OURS)}
ALIASES: Mapping[str, str] = {"StalledTrainingRule": "StalledTraining"}


def rule_class(name: str) -> type[BuiltinRule]:
    """The built-in rule of that name. Raises UnknownRule, with the nearest names."""
    found = RULES.get(ALIASES.get(name, name))
    if found is None:
        by_lower = {known.lower(): known for known in (*RULES, *ALIASES)}
        near = get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5) or get_close_matches(
            name.lower(), by_lower, n=1, cutoff=0.0
        )
        raise UnknownRule(name, [by_lower[each] for each in near])
    return found


def make_rule(name: str, trial: Trial, /, *, rule_name: str | None = None, **parameters: Any) -> BuiltinRule:
    """A built-in rule by its name, on `trial`. `rule_name` is what its findings are filed under, if not its own name.

    Raises UnknownRule, InvalidRuleParameter.
    """
    rule = rule_class(name)(trial, **parameters)
    if rule_name:
        rule.rule_name = rule_name
    return rule
