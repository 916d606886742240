"""The largest logits and the entropy of Keras' attention layers, next to those that numpy computes from the weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from support import keras_training as kt
from support.made_hooks import closed
from tensortrial import create_trial
from tensortrial.mode import modes
from tensortrial.rules import AttentionLogitGrowth, invoke_rule

Make = Callable[..., Any]
Array = np.ndarray[Any, Any]
TOKENS, HEADS, SIZE = 8, 2, 4
HOWS = ["fit", "fit eagerly", "fit with XLA", "tape", "tape in a function"]


def model_with(attend: Callable[[Any], Any]) -> Any:
    """A classifier of digits, whose rows are tokens. `attend` returns the output of an attention layer."""
    inputs = keras.layers.Input((TOKENS, TOKENS))
    head = keras.layers.Dense(10, name="head")
    return keras.Model(inputs, head(keras.layers.Flatten()(attend(inputs))))


def of(layer: Any, **options: Any) -> Callable[[Any], Any]:
    """Self-attention."""
    return lambda tokens: layer(tokens, tokens, **options)


def multi_head(**options: Any) -> Any:
    return keras.layers.MultiHeadAttention(HEADS, SIZE, name="mha", **options)


def batch(number: int) -> tuple[Any, Any]:
    x, y = kt.data(1, number)
    return x.reshape(-1, TOKENS, TOKENS), y


def padded(number: int) -> tuple[Any, Any]:
    """Images of which some end early."""
    x, y = batch(number)
    x = x + 0.1
    x[::3, 5:] = x[1::3, 2:] = 0
    return x, y


def train(
    hook: Any, model: Any, how: str, steps: int = 2, data: Callable[[int], tuple[Any, Any]] = batch
) -> list[dict[str, Array]]:
    """Train, and return the weights before each step."""
    batches = [data(number) for number in range(steps)]
    return kt.train(hook, model, how, batches, lambda x: projections(model))


def projections(model: Any) -> dict[str, Array]:
    layer = model.get_layer("mha")
    dense = {"query": layer._query_dense, "key": layer._key_dense} if hasattr(layer, "_query_dense") else {}
    return {f"{side} {at}": np.array(each.weights[at]) for side, each in dense.items() for at in range(2)}


def expected(x: Array, weights: dict[str, Array], seen: Array) -> tuple[Array, Array]:
    """Return the largest logit of each head, and its mean entropy over the queries that see something."""
    query, key = (
        np.einsum("btd,dnh->btnh", x, weights[f"{side} 0"]) + weights[f"{side} 1"] for side in ("query", "key")
    )
    key = np.repeat(key, query.shape[2] // key.shape[2], axis=2)
    logits = np.einsum("btnh,bsnh->bnts", query.astype(float), key) / np.sqrt(query.shape[3])
    seen = np.broadcast_to(seen, logits.shape)
    logits = np.where(seen, logits, -np.inf)
    sees = seen.any(-1)
    with np.errstate(all="ignore"):
        chances = np.exp(logits - logits.max(-1, keepdims=True))
        chances /= chances.sum(-1, keepdims=True)
        terms = -np.where(chances > 0, chances * np.log(chances), 0).sum(-1)
    entropy = [terms[:, head][sees[:, head]].mean() for head in range(logits.shape[1])]
    return logits.max(axis=(0, 2, 3)), np.array(entropy)


def check(
    out: str,
    weights: list[dict[str, Array]],
    seen: Array | None = None,
    data: Callable[[int], tuple[Any, Any]] = batch,
) -> None:
    trial = create_trial(out)
    everything = np.ones((1, 1, 1, 1), bool)
    for step, each in enumerate(weights):
        right = expected(data(step)[0], each, everything if seen is None else seen)
        found = [trial.tensor(f"attention/mha/{name}").value(step, modes.TRAIN) for name in ("logit_max", "entropy")]
        for value, wanted in zip(found, right, strict=True):
            assert value.dtype == np.float32
            np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-5)


CAUSAL = np.tril(np.ones((TOKENS, TOKENS), bool))[None, None]


@pytest.mark.parametrize("how", HOWS)
def test_logits_and_entropy_are_those_of_the_weights_before_the_step(make_hook: Make, out: str, how: str) -> None:
    hook = make_hook(include_collections=["attention"])
    weights = train(hook, model_with(of(multi_head(), use_causal_mask=True)), how)
    check(out, weights, CAUSAL)
    trial = create_trial(out)
    assert trial.tensor("attention/mha/logit_max").reduction_value(1, "max", modes.TRAIN) is not None
    assert invoke_rule(AttentionLogitGrowth(trial)) == []
    assert len(invoke_rule(AttentionLogitGrowth(trial, threshold=1e-3))) > 0


@pytest.mark.parametrize("how", ["fit", "tape"])
@pytest.mark.parametrize("rank", [3, 4])
def test_a_mask_hides_what_the_layer_does_not_see(make_hook: Make, out: str, how: str, rank: int) -> None:
    mask = np.random.default_rng(0).random((1, HEADS, TOKENS, TOKENS) if rank == 4 else (1, TOKENS, TOKENS)) < 0.5
    mask[..., 3, :] = False  # a query that sees nothing
    hook = make_hook(include_collections=["attention"])
    weights = train(hook, model_with(of(multi_head(), attention_mask=tf.constant(mask))), how)
    check(out, weights, mask if rank == 4 else mask[:, None])


@pytest.mark.parametrize("how", ["fit", "tape"])
def test_padding_is_left_out(make_hook: Make, out: str, how: str) -> None:
    def attend(tokens: Any) -> Any:
        masked = keras.layers.Masking()(tokens)
        return keras.layers.GlobalAveragePooling1D()(multi_head()(masked, masked))

    hook = make_hook(include_collections=["attention"])
    weights = train(hook, model_with(attend), how, steps=1, data=padded)
    held = (padded(0)[0] != 0).any(-1)
    assert not held.all()
    check(out, weights, held[:, None, :, None] & held[:, None, None, :], padded)


@pytest.mark.skipif(not kt.KERAS_3, reason="Keras 2 has no such layer")
def test_queries_that_share_keys(make_hook: Make, out: str) -> None:
    hook = make_hook(include_collections=["attention"])
    layer = keras.layers.GroupQueryAttention(SIZE, num_query_heads=4, num_key_value_heads=2, name="mha")
    check(out, train(hook, model_with(of(layer)), "fit"))
    assert create_trial(out).tensor("attention/mha/entropy").value(0, modes.TRAIN).shape == (4,)


@pytest.mark.skipif(not kt.KERAS_3, reason="Keras 2 has no such argument")
def test_a_sliding_window(make_hook: Make, out: str) -> None:
    if "sliding_window" not in multi_head().get_config():
        pytest.skip("an older Keras 3")
    hook = make_hook(include_collections=["attention"])
    layer = multi_head(sliding_window=2)
    near = np.abs(np.arange(TOKENS)[:, None] - np.arange(TOKENS)) < 2
    check(out, train(hook, model_with(of(layer)), "fit"), near[None, None])


@pytest.mark.parametrize("how", ["fit", "tape"])
def test_a_layer_that_is_called_twice_has_two(make_hook: Make, out: str, how: str) -> None:
    layer = multi_head()
    hook = make_hook(include_collections=["attention"])
    train(hook, model_with(lambda tokens: layer(layer(tokens, tokens), tokens)), how, steps=1)
    names = create_trial(out).tensor_names(regex="^attention/")
    assert names == [f"attention/mha/{name}{call}" for name in ("entropy", "logit_max") for call in ("", "_1")]


@pytest.mark.parametrize("how", ["fit", "tape"])
@pytest.mark.parametrize("options", [{"save_all": True}, {"include_collections": ["health"]}], ids=["all", "health"])
def test_nothing_is_computed_unless_the_collection_is_asked_for(
    make_hook: Make, out: str, how: str, options: Any
) -> None:
    train(make_hook(**options), model_with(of(multi_head())), how, steps=1)
    assert create_trial(out).tensor_names(regex="^attention/") == []


@pytest.mark.parametrize("how", ["fit", "tape"])
def test_a_model_without_attention_trains_and_has_none(make_hook: Make, out: str, how: str) -> None:
    hook = make_hook(include_collections=["attention"])
    train(hook, model_with(lambda tokens: keras.layers.Dense(4, name="mha")(tokens)), how, steps=1)
    assert create_trial(out).tensor_names(regex="^attention/") == []


def test_attention_over_several_axes_is_passed_over(make_hook: Make) -> None:
    hook = make_hook(include_collections=["attention"])

    def attend(tokens: Any) -> Any:
        images = keras.layers.Reshape((TOKENS, TOKENS, 1))(tokens)
        return multi_head(attention_axes=(1, 2))(images, images)

    model = model_with(attend)
    kt.compiled(model)
    model.fit(*batch(0), batch_size=kt.BATCH, verbose=0, callbacks=[hook])
    trial = closed(hook)
    assert trial.tensor_names(regex="^attention/") == []
    assert trial.tensor("loss").steps(modes.TRAIN) == [0]
