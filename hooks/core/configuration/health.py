"""The collections `health` and `attention`: one word each for what people watch of a large model."""

from __future__ import annotations

from tensortrial.config.collection import CollectionKeys
from tensortrial.config.reduction_config import ReductionConfig

from .collections import CollectionManager

ATTENTION = "attention"
_TENSORS = r"^(?!hyperparameters/|model_inputs_|labels_)(?!.*(_input_|/inputs))"
"""Parameters, gradients, outputs of layers, updates and moments: all but inputs, which are outputs of other layers."""


def define_health(collections: CollectionManager) -> None:
    """Give the collection `health` its tensors and statistics, which one pass over each tensor computes."""
    health = collections.require(CollectionKeys.HEALTH)
    health.include(_TENSORS)
    health.reduction_config = ReductionConfig(
        reductions=(
            *("mean", "std", "rms", "skewness", "kurtosis"),
            *("nan_count", "inf_count", "zero_count", "subnormal_count", "saturated_count"),
        ),
        abs_reductions=("mean", "max"),
        norms=("l2",),
    )


def define_attention(collections: CollectionManager) -> None:
    """Give the collection `attention` its tensors, unless the user has."""
    attention = collections.require(ATTENTION)
    if attention.is_empty:
        attention.include(f"^{ATTENTION}/")
        attention.reduction_config = ReductionConfig(reductions=["min", "max", "mean"], save_raw_tensor=True)
