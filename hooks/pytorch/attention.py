"""The largest logits and the entropy of attention, which are computed again from queries and keys when they are due."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.functional import multi_head_attention_forward, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from tensortrial.errors import UnsupportedValue

from ..core.configuration.collections import ATTENTION, define_attention
from ..core.recorder import guarded
from .hook import Hook
from .multihead import projected

# Logits that are in memory at once: 64 MiB of float32.
_MOST_LOGITS = 1 << 24


@contextmanager
def attention_statistics(hook: Hook) -> Iterator[None]:
    """Save the largest logit and the entropy of each attention head, for forwards inside the block.

    At steps at which the collection `attention` is due, each call of
    `torch.nn.functional.scaled_dot_product_attention`, and of a torch.nn.MultiheadAttention, is accompanied by a second
    product of its queries and keys. The n-th call of a forward saves `attention/<n>/logit_max` and
    `attention/<n>/entropy` (in nats, the mean over queries), of shape (heads,), over the batch and all positions that
    the mask allows. A model on an accelerator waits for the results. Nothing is computed at other steps, nor in
    compiled code, nor of nested tensors.

    Args:
        hook: The hook that saves them.

    Returns:
        A context manager.
    """
    collections = hook.recorder.collections
    define_attention(collections)
    collections.include([ATTENTION])
    with _AttentionMode(hook):
        yield


class _AttentionMode(TorchFunctionMode):
    """A mode that intercepts calls of attention functions."""

    def __init__(self, hook: Hook) -> None:
        super().__init__()
        self._hook, self.recorder = hook, hook.recorder
        self._step: object = None
        self._calls = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _ATTENTION and not torch.compiler.is_compiling():
            self._save(_ATTENTION[func], args, kwargs)
        return func(*args, **kwargs)

    @guarded
    def _save(self, read: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> None:
        step = self.recorder.clock.step
        if step is not self._step:
            self._step, self._calls = step, 0
        name = f"{ATTENTION}/{self._calls}"
        self._calls += 1
        if not self._hook.capture.saving or self.recorder.planner.plan(f"{name}/logit_max") is None:
            return
        with torch.no_grad(), torch._C.DisableTorchFunction():
            query, key, named = read(args, options)
            if query.is_nested:
                self.recorder.refuse(ATTENTION, UnsupportedValue("the queries are a nested tensor"))
                return
            if query.dim() < 3 or not query.numel() or not key.numel():
                return
            with torch.autocast(query.device.type, enabled=False):
                largest, entropy = _measured(query.detach(), key.detach(), named)
        self._hook.save_tensors({f"{name}/logit_max": largest, f"{name}/entropy": entropy}, ATTENTION)


def _given(args: Sequence[Any], options: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
    """Return the queries, the keys and the options of a call of scaled_dot_product_attention."""
    named = {**dict(zip(_ARGUMENTS, args, strict=False)), **options}
    query, mask = named.pop("query"), named.get("attn_mask")
    materialize = getattr(mask, "_materialize", None)
    if materialize is not None:  # a CausalBias: its memory is not the mask, and its module imports the compiler
        named["attn_mask"] = materialize(query.device)
    return query, named.pop("key"), named


_ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
_ATTENTION: dict[Any, Any] = {scaled_dot_product_attention: _given, multi_head_attention_forward: projected}
"""The attention functions, each with a function that returns queries, keys and options of a call."""


def _measured(query: torch.Tensor, key: torch.Tensor, options: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the largest logit and the mean entropy of each head, both of shape (heads,) and float32."""
    if options.get("enable_gqa"):
        key = key.repeat_interleave(query.size(-3) // key.size(-3), dim=-3)
    scale = options.get("scale")
    query = query.float() * (1 / math.sqrt(query.size(-1)) if scale is None else scale)
    keys = key.float().transpose(-2, -1)
    rows = max(1, _MOST_LOGITS // max(1, math.prod(query.shape[:-2]) * keys.size(-1)))
    largest, entropies = [], []
    for first in range(0, query.size(-2), rows):
        logits = _masked(query[..., first : first + rows, :] @ keys, first, options)
        largest.append(_of_heads(logits.amax(dim=-1), torch.Tensor.amax))
        chances = torch.softmax(logits, dim=-1)
        # A query whose keys are all masked has no probabilities.
        entropies.append(-torch.special.xlogy(chances, chances).sum(dim=-1).nan_to_num(0.0))
    return torch.stack(largest).amax(dim=0), _of_heads(torch.cat(entropies, dim=-1), torch.Tensor.mean)


def _masked(logits: torch.Tensor, first: int, options: dict[str, Any]) -> torch.Tensor:
    """Return the logits of the queries from `first` on, with -inf for masked keys."""
    mask = options.get("attn_mask")
    if mask is not None:
        if mask.size(-2) > 1:
            mask = mask[..., first : first + logits.size(-2), :]
        logits = logits.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else logits + mask
    if options.get("is_causal"):
        seen = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril(first)
        logits = logits.masked_fill(~seen, -math.inf)
    return logits


def _of_heads(values: torch.Tensor, reduce: Callable[..., torch.Tensor]) -> torch.Tensor:
    """Reduce shape (..., heads, queries) to (heads,)."""
    return reduce(values.transpose(0, -2).flatten(1), dim=1)
