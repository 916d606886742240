"""The load and the entropy of routers in mixtures of experts, which are computed from their outputs when due."""

from __future__ import annotations

import re

import torch

from tensortrial.errors import UnsupportedValue

from .arrays import local_part

_ROUTERS = re.compile(r"(?i)(^|[._])\w*(router|gate)$")
"""Matches the names of modules that are treated as routers. A gate_proj is not one."""


def router_values(path: str, output: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    """Return the load of each expert and the entropy of the choice of one, by name; nothing unless it is a router.

    The first output of a module, `output`, is a logit or a probability of each expert, along the last axis.
    """
    if not _ROUTERS.search(path) or output.dim() < 2 or not output.is_floating_point() or not output.numel():
        return []
    if output.size(-1) < 2:
        return []
    with torch.no_grad():
        try:
            logits = local_part(output).detach().float().flatten(0, -2)
        except UnsupportedValue:  # the output is not saved either, which is logged
            return []
        return [(f"router/{path}/load", load_of(logits)), (f"router/{path}/entropy", entropy_of(logits))]


def load_of(logits: torch.Tensor) -> torch.Tensor:
    """Return each expert's share of the tokens, by their largest logits, from (tokens, experts) to (experts,)."""
    experts = torch.arange(logits.size(-1), device=logits.device)
    return (logits.argmax(dim=-1, keepdim=True) == experts).sum(dim=0, dtype=torch.float32) / len(logits)


def entropy_of(logits: torch.Tensor) -> torch.Tensor:
    """Return the mean over tokens of the entropy of a router's probabilities, in nats.

    `logits` are of shape (tokens, experts), or probabilities, which sum to 1.
    """
    sums_to_one = ((logits.sum(dim=-1) - 1).abs().amax() < 1e-2) & (logits.amin() >= 0)
    chances = torch.where(sums_to_one, logits, torch.softmax(logits, dim=-1))
    return -torch.special.xlogy(chances, chances).sum(dim=-1).mean()
