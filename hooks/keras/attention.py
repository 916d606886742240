"""The largest logits and the entropy of each head of Keras' attention layers, in the step that runs or is traced.

A layer does not expose its queries and keys, but computes them by inner layers, whose calls are observed. Their product
is computed again, because the layer may compute it inside a fused operation.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import keras

from ..core.configuration.collections import ATTENTION
from ..core.recorder import Recorder
from .backend import IS_TENSORFLOW

# The second is missing in Keras 2.
_LAYERS = (
    keras.layers.MultiHeadAttention,
    getattr(keras.layers, "GroupQueryAttention", keras.layers.MultiHeadAttention),
)


@dataclass(slots=True)
class _Call:
    """A running call of an attention layer."""

    layer: Any
    arguments: Mapping[str, Any]
    masks: dict[str, Any]
    """The masks of the queries, keys and values that Keras knows."""
    query: Any = None
    key: Any = None


class AttentionCalls:
    """The running calls of attention layers, whose projections are collected."""

    def __init__(self, recorder: Recorder) -> None:
        self._is_on = IS_TENSORFLOW and ATTENTION in recorder.collections.saved_names
        self._calls: list[_Call] = []

    def begin(self, layer: Any, outermost: bool, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Note the start of a layer's call."""
        if outermost:
            # Earlier calls may have ended by an error.
            self._calls.clear()
        if self._is_on and isinstance(layer, _LAYERS):
            arguments = inspect.signature(layer.call).bind_partial(*args, **kwargs).arguments
            # The masks are read now, because the layer removes them from the tensors.
            masks = {side: _mask_of(side, arguments) for side in ("query", "value", "key")}
            self._calls.append(_Call(layer, arguments, masks))

    def end(
        self, layer: Any, path: str | None, output: Any, is_due: Callable[[str, Any], bool]
    ) -> Iterable[tuple[str, Any]]:
        """Note the end of a layer's call, and return its measurements: names and tensors of shape (heads,).

        Args:
            layer: The layer.
            path: Its path; None for a layer without a name.
            output: Its output.
            is_due: Called with the name of the largest logits and the queries. Returns whether to compute both.
        """
        call = self._calls[-1] if self._calls else None
        if call is None:
            return ()
        if layer is _projection(call.layer, "query"):
            call.query = output
        elif layer is _projection(call.layer, "key"):
            call.key = output
        elif layer is call.layer:
            self._calls.pop()
            if path is not None and _has_heads(call.query) and _has_heads(call.key):
                name = f"{ATTENTION}/{path}"
                return _measured(name, call) if is_due(f"{name}/logit_max", call.query) else ()
        return ()


def _projection(layer: Any, side: str) -> Any:
    """Return the inner layer of a projection; None before it is built."""
    return getattr(layer, f"_{side}_dense", None)


def _mask_of(side: str, arguments: Mapping[str, Any]) -> Any:
    given = arguments.get(f"{side}_mask")
    return getattr(arguments.get(side), "_keras_mask", None) if given is None else given


def _has_heads(projected: Any) -> bool:
    """Return whether a projection has the shape (batch, positions, heads, size), and is not symbolic."""
    import tensorflow as tf

    return tf.is_tensor(projected) and projected.shape.rank == 4 and not keras.backend.is_keras_tensor(projected)


def _measured(name: str, call: _Call) -> Iterator[tuple[str, Any]]:
    import tensorflow as tf

    query, key = (tf.cast(tf.stop_gradient(each), tf.float32) for each in (call.query, call.key))
    if key.shape[2] != query.shape[2]:
        key = tf.repeat(key, query.shape[2] // key.shape[2], axis=2)
    logits = tf.einsum("btnh,bsnh->bnts", query, key) / math.sqrt(query.shape[3])
    seen = tf.ones_like(logits, tf.bool)
    for mask in _masks(call, tf.shape(logits)[2], tf.shape(logits)[3]):
        seen = tf.logical_and(seen, tf.cast(mask, tf.bool))
    yield f"{name}/logit_max", tf.reduce_max(tf.where(seen, logits, -math.inf), axis=[0, 2, 3])
    chances = tf.nn.softmax(tf.where(seen, logits, tf.float32.min))
    entropy = -tf.reduce_sum(tf.math.xlogy(chances, chances), axis=3)
    # A query whose keys are all masked, such as padding, has no entropy.
    sees = tf.cast(tf.reduce_any(seen, axis=3), tf.float32)
    yield f"{name}/entropy", tf.math.divide_no_nan(tf.reduce_sum(entropy * sees, [0, 2]), tf.reduce_sum(sees, [0, 2]))


def _masks(call: _Call, queries: Any, keys: Any) -> Iterator[Any]:
    """Yield masks of the keys for queries; each broadcasts to (batch, heads, queries, keys)."""
    import tensorflow as tf

    if call.masks["query"] is not None:
        yield call.masks["query"][:, None, :, None]
    for side in ("value", "key"):
        if call.masks[side] is not None:
            yield call.masks[side][:, None, None, :]
    mask = call.arguments.get("attention_mask")
    if mask is not None:
        yield mask if len(mask.shape) == 4 else mask[..., None, :, :]
    distance = tf.range(queries)[:, None] - tf.range(keys)
    if call.arguments.get("use_causal_mask"):
        yield distance >= 0
    window = call.layer.get_config().get("sliding_window")
    if window is not None:
        yield tf.abs(distance) < window
