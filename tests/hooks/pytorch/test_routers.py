"""The load and the entropy of the routers of mixtures of experts, with the collection `health`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tensortrial.hooks.pytorch as tt  # noqa: E402
from tensortrial import create_trial  # noqa: E402

EXPERTS = 4


class Gate(torch.nn.Linear):  # type: ignore[misc, name-defined]
    """Returns what `form` makes of the logits."""

    def __init__(self, form: Any) -> None:
        super().__init__(6, EXPERTS)
        self.form = form

    def forward(self, x: Any) -> Any:
        return self.form(super().forward(x))


class Mixture(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, name: str, form: Any) -> None:
        super().__init__()
        self.add_module(name, Gate(form))
        self.name = name

    def forward(self, x: Any) -> Any:
        return self.get_submodule(self.name)(x)


FORMS = {
    "logits": lambda logits: logits,
    "probabilities": lambda logits: logits.softmax(-1),
    "of a tuple": lambda logits: (logits, logits.topk(2).values, logits.topk(2).indices),
    "of half precision": lambda logits: logits.to(torch.bfloat16),
}


def run(make_hook: Any, form: Any, name: str = "gate", **options: Any) -> Any:
    torch.manual_seed(0)
    model, x = Mixture(name, form), torch.randn(3, 50, 6)
    hook = make_hook(**options)
    hook.register_module(model)
    for _ in range(3):
        model(x)
    hook.close()
    return torch.nn.functional.linear(x, *model.parameters()).detach().double().reshape(-1, EXPERTS)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["gate", "router", "switch_router"])
def test_they_are_those_of_the_tokens(make_hook: Any, out: str, form: str, name: str) -> None:
    logits = run(make_hook, FORMS[form], name, include_collections=["health"], save_config={"save_interval": 2})
    trial = create_trial(out)
    load, entropy = trial.tensor(f"router/{name}/load"), trial.tensor(f"router/{name}/entropy")
    assert load.steps() == entropy.steps() == [0, 2]
    expected = np.bincount(logits.argmax(-1), minlength=EXPERTS) / len(logits)
    # Rounding to bfloat16 may change which of two near logits is the largest.
    np.testing.assert_allclose(load.value(2), expected, atol=0.02 if "half" in form else 1e-6)
    chances = logits.softmax(-1)
    np.testing.assert_allclose(entropy.value(2), -(chances * chances.log()).sum(-1).mean(), rtol=5e-3)
    assert trial.sql("select count(*) from scalars where name like 'router/%'").fetchall() == [(2,)]


@pytest.mark.parametrize(
    ("name", "form", "options"),
    [
        ("gate", FORMS["logits"], {"save_all": True}),
        ("gate_proj", FORMS["logits"], {"include_collections": ["health"]}),
        ("gate", lambda logits: logits.topk(2).indices, {"include_collections": ["health"]}),
        ("gate", lambda logits: logits.sum(), {"include_collections": ["health"]}),
        ("gate", lambda logits: logits[:, :0], {"include_collections": ["health"]}),
        ("gate", lambda logits: logits[..., :1], {"include_collections": ["health"]}),
    ],
)
def test_there_are_none_of_other_modules_and_outputs_or_without_health(
    make_hook: Any, out: str, name: str, form: Any, options: Any
) -> None:
    run(make_hook, form, name, **options)
    assert create_trial(out).tensor_names(regex="^router/") == []


@pytest.mark.usefixtures("lenient")
def test_a_router_without_readable_values_leaves_its_other_outputs(make_hook: Any, out: str) -> None:
    run(make_hook, lambda logits: (logits.to("meta"), logits), include_collections=["health"])
    assert create_trial(out).tensor("gate_output_1").steps() == [0, 1, 2]


def test_compiled_routers_have_them_too(make_hook: Any, out: str) -> None:
    torch.manual_seed(0)
    model, x = Mixture("gate", FORMS["logits"]), torch.randn(3, 50, 6)
    hook = make_hook(include_collections=["health"])
    hook.register_module(model)
    torch.compile(model, backend="aot_eager")(x)
    hook.close()
    assert create_trial(out).tensor("router/gate/load").value(0).sum() == pytest.approx(1)


class Layer(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A mixture of experts, two for each token."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.gate = torch.nn.Linear(size, EXPERTS)
        self.experts = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(size, size), torch.nn.ReLU(), torch.nn.Linear(size, size))
            for _ in range(EXPERTS)
        )

    def forward(self, x: Any) -> Any:
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        return sum(
            (weights * (chosen == number)).sum(-1, keepdim=True) * expert(x)
            for number, expert in enumerate(self.experts)
        )


class Transformer(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 16)
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2)
        self.moe, self.head = Layer(16), torch.nn.Linear(16, 50)

    def forward(self, x: Any) -> Any:
        return self.head(self.moe(self.encoder(self.embedding(x))))


def test_one_word_saves_the_health_of_a_transformer_and_queries_read_it(make_hook: Any, out: str) -> None:
    import tensortrial

    torch.manual_seed(0)
    model, criterion = Transformer(), torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    hook = make_hook(include_collections=["health"])
    hook.register_module(model)
    hook.register_loss(criterion)
    hook.register_optimizer(optimizer)
    for _ in range(24):
        x = torch.randint(0, 50, (8, 12))
        optimizer.zero_grad()
        with tt.attention_statistics(hook):
            logits = model(x)
        criterion(logits.flatten(0, 1), x.flatten()).backward()
        optimizer.step()
    hook.close()

    weights = {name: rest for _, name, _, _, step, *rest in tensortrial.query(out, "parameter_health") if step == 5}
    assert len(weights) == len(list(model.parameters()))
    for name in ("moe.experts.0.0.weight", "encoder.layers.1.self_attn.in_proj_weight", "embedding.weight"):
        norm, gradient, ratio = weights[f"Transformer_{name}"]
        assert norm > 0
        assert gradient > 0
        assert 1e-5 < ratio < 0.1
    outputs = {name: rest for _, name, _, _, step, *rest in tensortrial.query(out, "activation_health") if step == 5}
    rms, kurtosis, dead = outputs["moe.experts.0.1_output_0"]
    assert (0 < rms < 5, kurtosis > 1, 0.2 < dead < 0.8) == (True, True, True)
    assert outputs["encoder.layers.0_output_0"][2] == 0
    ((*_, compared, spikes, score, _, _),) = tensortrial.query(out, "spike_scores").fetchall()
    assert (compared, spikes, score) == (4, 0, 0.0)
    trial = create_trial(out)
    assert trial.tensor("router/moe.gate/load").value(5).shape == (EXPERTS,)
    assert trial.tensor("attention/1/logit_max").value(5).shape == (2,)
    assert not trial.sql("""select name from tensors where chunk is not null and name not like 'attention/%'
        and name not like 'router/%'""").fetchall()

    found = tensortrial.diagnose(out)
    assert found.is_healthy, str(found)
    assert {"RouterCollapse", "AttentionLogitGrowth", "LossSpike", "UpdateRatioOutOfRange"} <= set(found.checked)
    assert {"ActivationOutliers", "PrecisionUnderflow", "ExplodingTensor"} <= set(found.checked)
