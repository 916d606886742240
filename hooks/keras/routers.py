"""The load and the entropy of the routers of mixtures of experts, as tensors of the step that runs or is traced."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tensortrial.config.collection import CollectionKeys
from tensortrial.format.record import Plan

from ..core.recorder import Recorder
from .backend import IS_TENSORFLOW
from .names import tensors_in

_ROUTERS = re.compile(r"(?i)(^|/)\w*(router|gate)$")
"""The layers that are taken for routers. A gate_proj is none."""
_DECISION = re.compile(r"^router/.*/(load|entropy)(_\d+)?$")


def router_of(recorder: Recorder, path: str, output: Any) -> str | None:
    """Return the start of the names of what a router decided, with the collection `health`; None for other layers.

    Args:
        recorder: The recorder of the hook.
        path: The path of the layer.
        output: Its output: a logit or a probability of each expert, along the last axis.
    """
    if not _ROUTERS.search(path) or not IS_TENSORFLOW or CollectionKeys.HEALTH not in recorder.collections.saved_names:
        return None
    if not hasattr(output, "dtype") or not hasattr(getattr(output, "shape", None), "rank"):
        return None
    if hasattr(output, "nested_row_splits") or hasattr(output, "dense_shape"):
        return None
    shape = output.shape
    if shape.rank is None or shape.rank < 2 or (shape[-1] or 0) < 2 or not output.dtype.is_floating:
        return None
    return f"router/{path}"


def decisions(router: str, output: Any) -> Iterator[tuple[str, Any]]:
    """Yield the share of tokens that each expert gets, and the mean entropy of the choice of one, with their names."""
    import tensorflow as tf

    experts = output.shape[-1]
    logits = tf.reshape(tf.cast(tf.stop_gradient(output), tf.float32), [-1, experts])
    yield f"{router}/load", tf.reduce_mean(tf.one_hot(tf.argmax(logits, axis=-1), experts), axis=0)
    error = tf.reduce_max(tf.abs(tf.reduce_sum(logits, axis=-1) - 1))
    sums_to_one = tf.logical_and(error < 1e-2, tf.reduce_min(logits) >= 0)
    chances = tf.where(sums_to_one, logits, tf.nn.softmax(logits))
    yield f"{router}/entropy", -tf.reduce_mean(tf.reduce_sum(tf.math.xlogy(chances, chances), axis=-1))


def first_tensor(output: Any) -> Any:
    """Return the first tensor of a layer's output; None if it has none."""
    return next((tensor for _, tensor in tensors_in(output)), None)


def plan_of(recorder: Recorder, name: str) -> Plan | None:
    """Return what of a tensor is due. What a router decided is saved whole: statistics of it say little."""
    plan = recorder.plan(name)
    return Plan(name, plan.collections, raw=True) if plan is not None and _DECISION.search(name) else plan
