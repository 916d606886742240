"""The collection `attention`: the largest logits and the entropy of each head."""

from __future__ import annotations

from tensortrial.config.reduction_config import ReductionConfig

from .collections import CollectionManager

ATTENTION = "attention"


def define_attention(collections: CollectionManager) -> None:
    """Give the collection `attention` its tensors, unless the user has."""
    attention = collections.require(ATTENTION)
    if attention.is_empty:
        attention.include(f"^{ATTENTION}/")
        attention.reduction_config = ReductionConfig(reductions=["min", "max", "mean"], save_raw_tensor=True)
