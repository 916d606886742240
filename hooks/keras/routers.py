"""The load and the entropy of routers in mixtures of experts, as tensors of the step that runs or is traced."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

from tensortrial.config.collection import CollectionKeys
from tensortrial.format.record import Plan

from ..core.recorder import Recorder
from .backend import IS_TENSORFLOW
from .names import tensors_in

_ROUTERS = re.compile(r"(?i)(^|/)\w*(router|gate)$")
"""Matches the paths of layers that are treated as routers. A gate_proj is not one."""
_DECISION = re.compile(r"^router/.*/(load|entropy)(_\d+)?$")


def router_tensors(
    recorder: Recorder, path: str, output: Any, is_due: Callable[[str, Any], bool]
) -> Iterable[tuple[str, Any]]:
    """Return the names and tensors of a router's load and entropy, which the collection `health` includes.

    The result is empty for other layers.

    Args:
        recorder: The recorder of the hook.
        path: The path of the layer.
        output: Its output: a logit or a probability of each expert, along the last axis.
        is_due: Called with the name of the load and the first tensor of the output. Returns whether to compute both.
    """
    if not _is_router(path) or not IS_TENSORFLOW or CollectionKeys.HEALTH not in recorder.collections.saved_names:
        return ()
    first = next((tensor for _, tensor in tensors_in(output)), None)
    if not _has_experts(first) or not is_due(f"router/{path}/load", first):
        return ()
    return _decisions(f"router/{path}", first)


@lru_cache(maxsize=4096)
def _is_router(path: str) -> bool:
    return _ROUTERS.search(path) is not None


def _has_experts(output: Any) -> bool:
    """Return whether an output is dense, floating-point, and has at least two axes, with experts along the last."""
    if not hasattr(output, "dtype") or not hasattr(getattr(output, "shape", None), "rank"):
        return False
    if hasattr(output, "nested_row_splits") or hasattr(output, "dense_shape"):
        return False
    shape = output.shape
    return shape.rank is not None and shape.rank >= 2 and (shape[-1] or 0) >= 2 and bool(output.dtype.is_floating)


def _decisions(router: str, output: Any) -> Iterator[tuple[str, Any]]:
    """Yield each expert's share of the tokens and the mean entropy of the choice, with their names."""
    import tensorflow as tf

    experts = output.shape[-1]
    logits = tf.reshape(tf.cast(tf.stop_gradient(output), tf.float32), [-1, experts])
    yield f"{router}/load", tf.reduce_mean(tf.one_hot(tf.argmax(logits, axis=-1), experts), axis=0)
    error = tf.reduce_max(tf.abs(tf.reduce_sum(logits, axis=-1) - 1))
    sums_to_one = tf.logical_and(error < 1e-2, tf.reduce_min(logits) >= 0)
    chances = tf.where(sums_to_one, logits, tf.nn.softmax(logits))
    yield f"{router}/entropy", -tf.reduce_mean(tf.reduce_sum(tf.math.xlogy(chances, chances), axis=-1))


def plan_of(recorder: Recorder, name: str) -> Plan | None:
    """Return the plan of a tensor. Decisions of routers are saved raw, because their statistics say little."""
    plan = recorder.planner.plan(name)
    return Plan(name, plan.collections, raw=True) if plan is not None and _DECISION.search(name) else plan
