"""The largest logits and entropies of attention are those of its softmax, and cost nothing where they are not due."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

import tensortrial.hooks.pytorch as tt  # noqa: E402
from tensortrial import create_trial  # noqa: E402
from tensortrial.hooks.pytorch import attention  # noqa: E402


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
    monkeypatch.setattr(attention, "_MOST_LOGITS", most)
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


def test_nothing_is_computed_where_they_are_not_due_or_outside_of_the_block(
    make_hook: Any, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    measured = attention._measured
    monkeypatch.setattr(attention, "_measured", lambda *args: calls.append(1) or measured(*args))
    model = Attend()
    hook = make_hook(save_config=tt.SaveConfig(save_interval=2))
    hook.register_module(model)
    for _ in range(4):
        with tt.attention_statistics(hook):
            model(*values())
    assert len(calls) == 2
    model(*values())  # a step that is due, outside of the block
    hook.close()
    assert len(calls) == 2
    assert create_trial(out).tensor("attention/0/entropy").steps() == [0, 2]


def test_calls_are_numbered_in_the_order_of_a_forward(make_hook: Any, out: str) -> None:
    model = torch.nn.ModuleList([Attend(), Attend()])
    model.forward = lambda q, k, v: model[1](model[0](q, k, v), k, v)
    hook = make_hook()
    hook.register_module(model)
    for _ in range(2):
        with tt.attention_statistics(hook):
            model(*values())
    hook.close()
    names = create_trial(out).tensor_names(regex="^attention/")
    assert names == [f"attention/{n}/{what}" for n in range(2) for what in ("entropy", "logit_max")]


def test_an_error_inside_does_not_reach_training(make_hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORTRIAL_STRICT", "0")
    monkeypatch.setattr(attention, "_measured", lambda *args: 1 / 0)
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
