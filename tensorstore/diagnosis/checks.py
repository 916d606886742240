"""The rules of a diagnosis: their parameters, the runs that they are for, and advice if one fires."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_STEPS_TO_FALL = 10


@dataclass(frozen=True)
class RunFacts:
    """The facts of a run that decide which rules are evaluated.

    Attributes:
        is_boosting: True for gradient boosting, which has no layers.
        workers: Number of workers.
        steps: Number of saved steps.
    """

    is_boosting: bool
    workers: int
    steps: int


@dataclass(frozen=True)
class Check:
    """A built-in rule with its settings in a diagnosis."""

    rule: str
    advice: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    is_note: bool = False
    of_layers: bool = True
    """True if it evaluates layers, gradients or weights, which gradient boosting lacks."""
    of_replicas: bool = False
    """True if it compares workers."""
    allowed_by: str = ""
    """The advice on how to enable the check, if the rule itself cannot give it."""
    explains: tuple[str, ...] = ()
    """Rules whose findings a few steps later are consequences of this one's."""


NON_FINITE = "ExplodingTensor"
"""NaN and infinities propagate to all values that are computed from them, so they explain all later findings."""

OUTLIERS = "ActivationOutliers"
"""Outliers follow from most other problems. Healthy models have them, too: they are a note if found alone."""

ANOMALY = "StatisticAnomaly"
"""A weight that leaves its past is a problem only if it has consequences."""

SPIKES = ("LossSpike", "GradientNormSpike", NON_FINITE)
"""The rules whose findings may be consequences of a weight that has left its past."""

UNTRAINED = "UntrainedParameter"
"""A parameter without a gradient may be frozen. With one, it is meant to be trained."""

RATIOS = ("UpdateRatioOutOfRange", "WeightUpdateRatio")
"""The rules whose findings are too large or too small, which have different causes and advice."""

_LOWER = "lower the learning rate or the weight decay of this parameter, or clip its gradient"

_AFTER_A_SPIKE = ("LossSpike", "GradientNormSpike", NON_FINITE, "LossNotDecreasing")
OF_A_SPIKE = (
    *_AFTER_A_SPIKE,
    ANOMALY,
    "WeightUpdateRatio",
    "UpdateRatioOutOfRange",
    OUTLIERS,
    "DeadRelu",
    "DeadFeatures",
    "VanishingGradient",
    "AllZero",
)
"""A large gradient changes weights strongly, which may make units inactive."""

CHECKS = (
    Check(
        NON_FINITE,
        "look at the inputs of this tensor at this step: the data of the batch, a division by zero, a logarithm or "
        "root of 0, float16 without loss scaling; clip gradients or lower the learning rate if norms rose before",
        of_layers=False,
    ),
    Check(
        "SilentCorruption",
        "run the job on another machine, and test this one; if it happens everywhere, a kernel is not deterministic: "
        "call torch.use_deterministic_algorithms(True)",
        allowed_by="run some steps again by tensortrial.hooks.pytorch.Replay",
        explains=("ReplicaDivergence", "RankDivergence"),
    ),
    Check(
        "ReplicaDivergence",
        "compare the workers at this step by `tensortrial compare RUN --workers A B`: replicas must start from one "
        "seed, receive the same reduced gradients, and run the same updates",
        of_replicas=True,
        explains=("RankDivergence",),
    ),
    Check(
        "RankDivergence",
        "compare the workers at this step by `tensortrial compare RUN --workers A B`, and check its data",
        of_replicas=True,
    ),
    Check(
        "OutputBiasGradient",
        "call optimizer.zero_grad() before each backward",
        explains=OF_A_SPIKE,
    ),
    Check(
        "WrongLossInput",
        "pass logits to CrossEntropyLoss and BCEWithLogitsLoss, and log_softmax(logits, dim=1) to NLLLoss",
        explains=OF_A_SPIKE,
    ),
    Check(
        "GradientNormSpike",
        "clip gradients by their norm, lower the learning rate or warm it up longer, and look at the batch",
        explains=OF_A_SPIKE,
    ),
    Check(
        "LossSpike",
        "look at the batch of this step; if spikes repeat, lower the learning rate or clip gradients",
        of_layers=False,
        explains=OF_A_SPIKE,
    ),
    Check(
        "UpdateRatioOutOfRange",
        _LOWER,
        allowed_by="pass include_collections=['health'] to the hook, and call hook.register_optimizer(optimizer)",
        explains=OF_A_SPIKE,
    ),
    Check(
        UNTRAINED,
        "check that the optimizer has this parameter and a learning rate above 0, or freeze the parameter, which saves "
        "the time and memory of its gradient",
        allowed_by="pass include_collections=['health'] to the hook, and call hook.register_optimizer(optimizer)",
        explains=RATIOS,
    ),
    Check(
        ANOMALY,
        "lower the learning rate of this parameter, or clip its gradient",
        is_note=True,
        explains=OF_A_SPIKE,
    ),
    Check(
        OUTLIERS,
        "look at the weights of the layer for a channel that grows; use weight decay or normalization before it",
        explains=_AFTER_A_SPIKE,
    ),
    Check(
        "AttentionLogitGrowth",
        "normalize queries and keys, clip their weights, or lower the learning rate",
        allowed_by="run forwards inside `with tt.attention_statistics(hook):`, or in Keras pass "
        "include_collections=['attention'] to the hook, if the model has attention",
        explains=_AFTER_A_SPIKE,
    ),
    Check(
        "RouterCollapse",
        "raise the weight of the loss that balances experts, or add noise to the router",
        allowed_by="pass include_collections=['health'] to the hook, if the model is a mixture of experts",
    ),
    Check(
        "PrecisionUnderflow",
        "scale the loss (torch.amp.GradScaler), or use bfloat16",
        explains=("VanishingGradient", "AllZero", *RATIOS),
    ),
    Check("WeightUpdateRatio", _LOWER, explains=OF_A_SPIKE),
    Check(
        "VanishingGradient",
        "check that the layer is part of the computation of the loss; use normalization, residual connections or "
        "another initialization",
        explains=("AllZero", *RATIOS),
    ),
    Check(
        "AllZero",
        "check that nothing cuts this parameter off the loss: a detached tensor, a dead activation, a mask",
        {"collection_names": "gradients"},
    ),
    Check(
        "DeadRelu",
        "lower the learning rate, change the initialization of the layer before it, or use a leaky activation",
        explains=("DeadFeatures", "VanishingGradient", "AllZero", *RATIOS),
    ),
    Check("DeadFeatures", "lower the learning rate, or make the layer narrower", is_note=True),
    Check(
        "SaturatedActivation",
        "scale the inputs of the layer down, or normalize them",
        explains=("VanishingGradient", "AllZero", *RATIOS),
    ),
    Check(
        "LowPrecisionSaturation",
        "scale this tensor, or keep it in float32",
        {"threshold_zero": 100},  # activations, dropout and masks have zeros by design
        explains=(NON_FINITE,),
    ),
    Check(
        "LossNotDecreasing",
        "nothing if the training has converged; else change the learning rate",
        is_note=True,
        of_layers=False,
    ),
    Check(
        "Overfit",
        "stop earlier, regularize more, or use more data",
        {"patience": 3},
        is_note=True,
        of_layers=False,
    ),
)

FROZEN = Check(
    "WeightUpdateRatio",
    "nothing if this parameter is frozen; else check that it is part of the computation of the loss",
    is_note=True,
    explains=(UNTRAINED,),
)
"""The check of a weight that does not change and has no gradient, although others have one."""

SMALL = {
    rule: Check(
        rule,
        "check that the optimizer has this parameter, and raise its learning rate, or the norm to which gradients are "
        "clipped; in bfloat16, small updates are lost in rounding: keep weights in float32",
        explains=(UNTRAINED,) if rule == FROZEN.rule else (),
    )
    for rule in RATIOS
}
"""The checks of updates that are too small."""

TOO_LATE = (
    "lower the learning rate or the weight decay, or clip gradients: activations became inactive or saturated, or "
    "weights too small"
)
"""The advice for a gradient that vanished after it had been large enough, so that its layer is part of the loss."""

UNFED = (
    "look at the inputs of this layer, which must be 0 or tiny, because its bias has a gradient: dead activations "
    "before it, an initialization that is too small, or data that are scaled wrongly"
)
"""The advice for a weight whose gradient vanishes at once while that of its bias does not."""

GREW = "lower the learning rate, clip gradients, or use another initialization, because values had grown before"
"""The advice for NaN and infinities after losses that are many times the first one."""

ROSE = "raise this learning rate less, or more slowly"
"""The advice for a spike after a learning rate rose."""

PASSING = (*RATIOS, "VanishingGradient", "AllZero", UNTRAINED, NON_FINITE)
"""The rules whose findings are notes if they ended before the run. Of NaN, only those in gradients and updates are.

Updates are large in the first steps of many trainings. A gradient is 0 until a layer that begins with zeros has
changed, and is not finite at the steps that a GradScaler skips, which have no update. A learning rate may begin with 0.
"""

CONVERGED = (*RATIOS, "VanishingGradient", "AllZero")
"""The rules that find what is too small. That is a note if the losses are nearly 0, too."""

DIVERGED = Check(
    "LossNotDecreasing",
    "lower the learning rate, or warm it up for longer, and check the sign of the loss: the last losses are all more "
    "than twice the first one",
    of_layers=False,
    explains=OF_A_SPIKE,
)
"""The check of a loss that is far above its first value in the end, while no other loss falls."""

OF_ONE_CLASS = Check(
    "OutputBiasGradient",
    "look at the labels of some batches: how they are read, their dtype, and whether examples are shuffled",
)
"""The check of a gradient that shows that the labels of each batch are of one class."""


def checks_for(facts: RunFacts) -> list[Check]:
    """Return the checks that apply to a run, regardless of its saved data."""
    return [
        check
        for check in CHECKS
        if not (check.of_layers and facts.is_boosting) and not (check.of_replicas and facts.workers < 2)
    ]


def parameters_of(check: Check, facts: RunFacts) -> dict[str, Any]:
    """Return the parameters of a check."""
    if check.rule == DIVERGED.rule:
        return {"num_steps": steps_to_fall(facts.steps), **check.parameters}
    return dict(check.parameters)


def steps_to_fall(steps: int) -> int:
    """Return the steps in which a loss must fall. In a longer run, it may be constant for longer."""
    return max(_STEPS_TO_FALL, steps // 4)
