"""The largest logits and entropies of attention are those of its softmax, and cost nothing where they are not due."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch.nn.attention.bias import causal_lower_right, causal_upper_left  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

import tensortrial.hooks.pytorch as tt  # noqa: E402
from support.made_hooks import closed  # noqa: E402
from support.torch_capture import break_attention, limit_logits  # noqa: E402
from support.torch_kernels import Kernels  # noqa: E402
from tensortrial import create_trial  # noqa: E402


class Attend(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        return scaled_dot_product_attention(q, k, v, **self.options)


def values(heads: int = 3, key_heads: int = 3, queries: int = 7, keys: int = 7) -> tuple[Any, Any, Any]:
    generator = torch.Generator().manual_seed(0)
    return tuple(
        torch.randn(2, number, length, 4, generator=generator) * 3
        for number, length in ((heads, queries), (key_heads, keys), (key_heads, keys))
    )


def expected(q: Any, k: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    """Return what the formulas give, over whole matrices."""
    k = k.repeat_interleave(q.size(1) // k.size(1), dim=1)
    logits = q.double() @ k.double().mT * (options.get("scale") or 1 / math.sqrt(q.size(-1)))
    mask = options.get("attn_mask")
    if options.get("is_causal"):
        mask = torch.ones(logits.shape[-2:], dtype=torch.bool).tril()
    if mask is not None:
        logits = logits.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else logits + mask
    chances = logits.softmax(-1)
    entropy = -(chances * chances.clamp_min(1e-300).log()).sum(-1)
    return logits.amax((0, 2, 3)).numpy(), entropy.mean((0, 2)).numpy()


MASK = torch.rand(7, 7, generator=torch.Generator().manual_seed(1)) > 0.3
MASK.fill_diagonal_(True)
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "scaled": {"scale": 0.5},
    "causal": {"is_causal": True},
    "masked": {"attn_mask": MASK},
    "biased": {"attn_mask": torch.randn(7, 7, generator=torch.Generator().manual_seed(2))},
    "of keys only": {"attn_mask": MASK[2:3] | MASK[3:4]},
    "grouped": {"enable_gqa": True},
}


@pytest.mark.parametrize("most", [1 << 24, 50])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_they_are_those_of_the_softmax(
    make_hook: Any, out: str, options: dict[str, Any], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_logits(monkeypatch, most)
    q, k, v = values(heads=4, key_heads=2) if options.get("enable_gqa") else values()
    model = Attend(**options)
    hook = make_hook()
    hook.register_module(model)
    with tt.attention_statistics(hook):
        found = model(q, k, v)
    hook.close()
    assert torch.equal(found, scaled_dot_product_attention(q, k, v, **options))
    trial = create_trial(out)
    largest, entropy = expected(q, k, options)
    np.testing.assert_allclose(trial.tensor("attention/0/logit_max").value(0), largest, rtol=1e-5)
    np.testing.assert_allclose(trial.tensor("attention/0/entropy").value(0), entropy, rtol=1e-4)


def test_logits_under_autocast_are_in_single_precision(make_hook: Any, out: str) -> None:
    q, k, v = (each.bfloat16() for each in values())
    model = Attend()
    hook = make_hook()
    hook.register_module(model)
    with tt.attention_statistics(hook), torch.autocast("cpu", torch.bfloat16):
        model(q, k, v)
    hook.close()
    largest, _ = expected(q, k, {})
    np.testing.assert_allclose(create_trial(out).tensor("attention/0/logit_max").value(0), largest, rtol=1e-5)


@pytest.mark.parametrize(("bias", "diagonal"), [(causal_upper_left, 0), (causal_lower_right, 3)])
def test_a_causal_bias_is_the_mask_that_it_stands_for(make_hook: Any, bias: Any, diagonal: int) -> None:
    q, k, v = values(queries=4)
    model, hook = Attend(attn_mask=bias(4, 7)), make_hook()
    hook.register_module(model)
    with tt.attention_statistics(hook):
        model(q, k, v)
    largest, entropy = expected(q, k, {"attn_mask": torch.ones(4, 7, dtype=torch.bool).tril(diagonal)})
    trial = closed(hook)
    np.testing.assert_allclose(trial.tensor("attention/0/logit_max").value(0), largest, rtol=1e-4)
    np.testing.assert_allclose(trial.tensor("attention/0/entropy").value(0), entropy, rtol=1e-4)


@pytest.mark.usefixtures("lenient")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_attention_of_no_positions_and_of_nested_tensors_is_left_out(make_hook: Any, caplog: Any) -> None:
    model, hook = Attend(), make_hook()
    hook.register_module(model)
    nested = torch.nested.nested_tensor([torch.ones(2, 3, 4), torch.ones(5, 3, 4)], layout=torch.jagged)
    with tt.attention_statistics(hook):
        model(*values())
        model(*values(queries=0, keys=0))
        model(*[nested.transpose(1, 2)] * 3)
    assert closed(hook).tensor("attention/0/entropy").steps() == [0]
    assert caplog.messages == ["tensor 'attention' is not saved: the queries are a nested tensor"]


HIDDEN = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
AHEAD = torch.ones(4, 5, dtype=torch.bool).triu(2)
MULTIHEAD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "without bias": ({"bias": False}, {}),
    "padded": ({}, {"key_padding_mask": HIDDEN}),
    "masked": ({}, {"attn_mask": AHEAD, "key_padding_mask": HIDDEN}),
    "biased": ({}, {"attn_mask": torch.randn(6, 4, 5, generator=torch.Generator().manual_seed(1))}),
    "other sizes": ({"kdim": 7, "vdim": 6}, {}),
    "added": ({"add_bias_kv": True, "add_zero_attn": True}, {"attn_mask": AHEAD, "key_padding_mask": HIDDEN}),
}


@pytest.mark.parametrize(("made", "called"), MULTIHEAD.values(), ids=MULTIHEAD)
def test_multihead_attention_is_seen(make_hook: Any, out: str, made: dict[str, Any], called: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = torch.nn.MultiheadAttention(12, 3, batch_first=True, **made)
    query, key, value = torch.randn(2, 4, 12) * 4, torch.randn(2, 5, model.kdim) * 4, torch.randn(2, 5, model.vdim)
    hook = make_hook()
    hook.register_module(model)
    for needs_weights in (True, False):
        with tt.attention_statistics(hook):
            found, weights = model(query, key, value, need_weights=needs_weights, average_attn_weights=False, **called)
        assert torch.equal(found, model(query, key, value, need_weights=needs_weights, **called)[0])
        if needs_weights:
            chances = weights.detach().double()
    hook.close()
    entropy = -torch.special.xlogy(chances, chances).sum(-1).mean((0, 2))
    trial = create_trial(out)
    # The forwards outside of the block are steps, too.
    first, second = trial.tensor("attention/0/entropy").steps()
    np.testing.assert_allclose(trial.tensor("attention/0/entropy").value(first), entropy, rtol=1e-4)
    np.testing.assert_allclose(trial.tensor("attention/0/entropy").value(second), entropy, rtol=1e-4)
    assert trial.tensor("attention/0/logit_max").value(first).shape == (3,)


def test_the_layers_of_a_transformer_are_seen_in_training_and_in_evaluation(make_hook: Any, out: str) -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    model = torch.nn.TransformerEncoder(layer, 2)
    hook = make_hook()
    hook.register_module(model)
    x = torch.randn(3, 5, 8)
    with tt.attention_statistics(hook):
        trained = model(x)
    model.eval()
    with torch.no_grad(), tt.attention_statistics(hook):
        evaluated = model(x)
    hook.close()
    torch.testing.assert_close(trained, evaluated)
    trial = create_trial(out)
    weights = model.layers[0].self_attn.in_proj_weight.detach().split(8)  # the biases are 0 at first
    q, k = ((x @ weight.T).unflatten(-1, (2, 4)).transpose(1, 2) for weight in weights[:2])
    largest, entropy = expected(q, k, {})
    for step in range(2):
        np.testing.assert_allclose(trial.tensor("attention/0/logit_max").value(step), largest, rtol=1e-4)
        np.testing.assert_allclose(trial.tensor("attention/0/entropy").value(step), entropy, rtol=1e-4)
        assert trial.tensor("attention/1/entropy").value(step).shape == (2,)


def test_nothing_is_computed_where_they_are_not_due_or_outside_of_the_block(make_hook: Any) -> None:
    def computed() -> int:
        with Kernels() as kernels:
            model(*values())
        return kernels.count

    model = Attend()
    without = computed()
    hook = make_hook(save_config=tt.SaveConfig(save_interval=2))
    hook.register_module(model)
    for step in range(4):
        with tt.attention_statistics(hook):
            assert (computed() > without) == (step % 2 == 0)
    assert computed() == without  # a step that is due, outside of the block
    assert closed(hook).tensor("attention/0/entropy").steps() == [0, 2]


def test_calls_are_numbered_in_the_order_of_a_forward(make_hook: Any) -> None:
    model = torch.nn.ModuleList([Attend(), Attend()])
    model.forward = lambda q, k, v: model[1](model[0](q, k, v), k, v)
    hook = make_hook()
    hook.register_module(model)
    for _ in range(2):
        with tt.attention_statistics(hook):
            model(*values())
    names = closed(hook).tensor_names(regex="^attention/")
    assert names == [f"attention/{n}/{what}" for n in range(2) for what in ("entropy", "logit_max")]


def test_an_error_inside_does_not_reach_training(make_hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORTRIAL_STRICT", "0")
    break_attention(monkeypatch)
    q, k, v = values()
    model, hook = Attend(), make_hook()
    hook.register_module(model)
    with tt.attention_statistics(hook):
        assert torch.equal(model(q, k, v), scaled_dot_product_attention(q, k, v))
        with pytest.raises(TypeError):
            scaled_dot_product_attention(q)  # type: ignore[call-arg]
    hook.close()
    with tt.attention_statistics(hook):  # closed, so nothing is saved
        model(q, k, v)
