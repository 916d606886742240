"""The projections of queries and keys of torch.nn.MultiheadAttention, which computes them inside one function."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn.functional import linear, multi_head_attention_forward, pad

_SIGNATURE = inspect.signature(multi_head_attention_forward)


def projected(args: Sequence[Any], options: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
    """Compute the projections of queries and keys again.

    Args:
        args: The arguments of torch.nn.functional.multi_head_attention_forward.
        options: The arguments that were passed by name.

    Returns:
        Queries and keys of shape (batch, heads, positions, dimensions), and the mask, in the form of the arguments of
        scaled_dot_product_attention.
    """
    bound = _SIGNATURE.bind(*args, **options)
    bound.apply_defaults()
    given = bound.arguments
    heads = given["num_heads"]
    # The shape is (positions, batch, dimensions), for a single sequence without the batch.
    query, key = (each if each.dim() == 3 else each.unsqueeze(1) for each in (given["query"], given["key"]))
    (of_query, of_key), (query_bias, key_bias) = _weights(given, query.size(-1))
    query, key = linear(query, of_query, query_bias), linear(key, of_key, key_bias)
    positions = key.size(0)
    if given["bias_k"] is not None:
        key = torch.cat([key, given["bias_k"].expand(1, key.size(1), -1)])
    if given["add_zero_attn"]:
        key = pad(key, (0, 0, 0, 0, 0, 1))
    query, key = (each.reshape(*each.shape[:2], heads, -1).permute(1, 2, 0, 3) for each in (query, key))
    if given["static_k"] is not None:
        key = given["static_k"].reshape(-1, heads, *given["static_k"].shape[1:])
    return query, key, {"attn_mask": _mask(given, heads, key.size(-2) - positions)}


def _weights(given: Mapping[str, Any], size: int) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
    """Return the weights of the projections of queries and keys, and their biases."""
    if given["use_separate_proj_weight"]:
        weights = [given["q_proj_weight"], given["k_proj_weight"]]
    else:
        weights = list(given["in_proj_weight"].split(size)[:2])
    bias = given["in_proj_bias"]
    return weights, [None, None] if bias is None else list(bias.split(size)[:2])


def _mask(given: Mapping[str, Any], heads: int, added: int) -> torch.Tensor | None:
    """Return the mask that is added to the logits; it broadcasts to (batch, heads, queries, keys).

    `added` is the number of positions that are appended to the keys, and are never masked.
    """
    masks = []
    if given["attn_mask"] is not None:
        mask = _added(given["attn_mask"])
        masks.append(mask.reshape(-1, heads, *mask.shape[1:]) if mask.dim() == 3 else mask)
    if given["key_padding_mask"] is not None:
        mask = _added(given["key_padding_mask"])
        masks.append(mask.reshape(-1, 1, 1, mask.size(-1)))
    return pad(sum(masks[1:], masks[0]), (0, added)) if masks else None


def _added(mask: torch.Tensor) -> torch.Tensor:
    """Return a mask as numbers to add. In a boolean mask True means masked."""
    return (
        torch.zeros_like(mask, dtype=torch.float32).masked_fill(mask, -math.inf) if mask.dtype == torch.bool else mask
    )
