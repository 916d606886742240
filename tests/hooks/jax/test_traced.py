"""The JAX hook inside functions that JAX traces: refused in a sentence, or by a callback of the compiled function."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from support.made_hooks import closed  # noqa: E402
from tensortrial import create_trial  # noqa: E402
from tensortrial.errors import ConfigurationError, UnsupportedValue  # noqa: E402
from tensortrial.hooks.jax import Hook  # noqa: E402


@pytest.mark.parametrize("transform", [jax.jit, jax.grad, jax.vmap], ids=["jit", "grad", "vmap"])
@pytest.mark.parametrize("method", ["tree", "tensor", "scalar", "stacked"])
def test_a_call_inside_a_traced_function_is_refused_in_a_sentence(
    make_hook: Any, out: str, method: str, transform: Any
) -> None:
    hook = make_hook()

    def traced(x: Any) -> Any:
        {
            "tree": lambda: hook.save_tree("weights", {"w": x, "v": x}, 0),
            "tensor": lambda: hook.save_tensor("w", x, step=0),
            "scalar": lambda: hook.log({"w": x.sum()}, step=0),
            "stacked": lambda: hook.log_stacked({"w": jnp.ones(2) * x}),
        }[method]()
        return x.sum()

    with pytest.raises(UnsupportedValue, match=r"no value yet, because the call is inside.*hook\.log_in_jit"):
        transform(traced)(jnp.ones(2) if transform is jax.vmap else jnp.float32(1))
    hook.log({"after": 1.0}, step=0)
    hook.close()
    assert create_trial(out).tensor("after").value(0) == 1


def test_a_tree_of_a_traced_call_is_saved_outside_of_it(make_hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENSORTRIAL_STRICT")
    hook = make_hook()

    @jax.jit
    def update(weights: Any) -> Any:
        hook.save_tree("weights", weights, 0)
        return {"w": weights["w"] + 1}

    hook.save_tree("weights", update({"w": jnp.ones(2)}), 1)
    weight = closed(hook).tensor("w")
    assert {step: weight.value(step).tolist() for step in weight.steps()} == {1: [2, 2]}


def test_without_strict_mode_the_traced_function_runs(
    make_hook: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.delenv("TENSORTRIAL_STRICT")
    hook = make_hook()

    @jax.jit
    def traced(x: Any) -> Any:
        hook.save_tree("weights", {f"w{i}": x for i in range(50)}, 0)
        hook.save_tree("weights", {"w": 1.0}, x)
        hook.log_in_jit({"x": x}, step=jnp.arange(2))
        return x + 1

    assert traced(jnp.int32(1)) == 2
    jax.effects_barrier()
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 3
    assert "'weights' is not saved: it has no value yet" in messages[0]
    assert all("step must be an integer" in each for each in messages[1:])


def test_numbers_from_inside_a_scan_are_saved_at_their_steps(make_hook: Any) -> None:
    hook = make_hook()

    def body(weight: Any, step: Any) -> Any:
        loss = (weight - 3.0) ** 2
        hook.log_in_jit({"loss": loss, "half": loss.astype(jnp.bfloat16)}, step=step)
        return weight - 0.1 * 2 * (weight - 3.0), loss

    train = jax.jit(lambda weight, first: jax.lax.scan(body, weight, first + jnp.arange(50)))
    weight, losses = train(0.0, 0)
    weight, more = train(weight, 50)
    jax.effects_barrier()
    tensor = closed(hook).tensor("loss")
    assert tensor.steps() == list(range(100))
    np.testing.assert_array_equal([tensor.value(step) for step in range(100)], np.concatenate([losses, more]))


@pytest.mark.parametrize("method", ["log", "save_tree"])
@pytest.mark.parametrize("is_mapped", [False, True])
def test_several_values_at_one_step_of_a_traced_function_are_named_once(
    make_hook: Any, out: str, caplog: pytest.LogCaptureFixture, method: str, is_mapped: bool
) -> None:
    hook = make_hook(include_collections=["weights"])

    def traced(x: Any, step: Any) -> Any:
        if method == "log":
            hook.log_in_jit({"x": x}, step=step)
        else:
            hook.save_tree_in_jit("weights", {"x": x}, step)
        return x + 1

    function = jax.jit(jax.vmap(traced, in_axes=(0, None)) if is_mapped else traced)
    for step in range(3):
        function(jnp.arange(4.0) if is_mapped else 1.0, step)
    jax.effects_barrier()
    hook.close()
    found = [each for each in caplog.messages if f"{method}_in_jit was called again at step 0" in each]
    assert len(found) == is_mapped
    assert create_trial(out).tensor("x").steps() == [0, 1, 2]


def test_the_stacked_numbers_of_a_scan_are_saved_afterwards(make_hook: Any, out: str) -> None:
    hook = make_hook()
    for first in (0, 20):
        _, losses = jax.lax.scan(lambda carry, x: (carry + x, carry), 0.0, first + jnp.arange(20.0))
        hook.log_stacked({"loss": losses, "host": np.arange(20), "short": [1, 2]}, first_step=first)
    trial = closed(hook)
    assert trial.tensor("loss").steps() == list(range(40))
    assert trial.tensor("loss").value(39) == losses[-1]
    assert trial.tensor("host").value(25) == 5
    assert trial.tensor("short").steps() == [0, 1, 20, 21]
    for values, first, message in [
        ({"loss": jnp.ones((2, 2))}, 0, "must have one axis"),
        ({"loss": ["a"]}, 0, "a real number"),
        ([1], 0, "a dictionary of arrays"),
        ({"loss": [1]}, "0", "step must be an integer"),
    ]:
        with pytest.raises(ConfigurationError, match=message):
            make_hook(f"{out}-{message[:4]}").log_stacked(values, first)


def test_a_tree_from_inside_jit_is_saved_each_time_the_function_runs(make_hook: Any) -> None:
    hook = make_hook(include_collections=["gradients"])

    @jax.jit
    def train_step(params: Any, step: Any) -> Any:
        loss, gradients = jax.value_and_grad(lambda tree: (tree["w"] ** 2).sum())(params)
        hook.save_tree_in_jit("gradients", gradients, step)
        hook.save_tree_in_jit("weights", params, step)
        hook.log_in_jit({"loss": loss}, step=step)
        return jax.tree.map(lambda each, slope: each - 0.1 * slope, params, gradients)

    params = {"w": jnp.ones((300, 400))}
    expected = []
    for step in range(5):
        expected.append(2 * np.asarray(params["w"]))
        params = train_step(params, step)
    jax.effects_barrier()
    trial = closed(hook)
    assert trial.tensor_names() == ["gradient/w", "loss"]
    for step in range(5):
        np.testing.assert_allclose(trial.tensor("gradient/w").value(step), expected[step], rtol=1e-6)


def test_a_hook_that_is_off_is_left_out_of_the_compiled_function(out: str) -> None:
    def traced_with(hook: Hook) -> str:
        def traced(x: Any) -> Any:
            hook.log_in_jit({"x": x}, step=0)
            hook.save_tree_in_jit("weights", x, 0)
            return x

        return str(jax.make_jaxpr(traced)(1.0))

    assert "callback" not in traced_with(Hook(out, dry_run=True))
    with Hook(out) as hook:
        assert "callback" in traced_with(hook)


def test_a_compiled_function_does_not_keep_a_closed_hook(out: str) -> None:
    hook = Hook(out)
    compiled = jax.jit(lambda x: hook.log_in_jit({"x": x}, step=0) or x).lower(1.0).compile()
    compiled(1.0)
    jax.effects_barrier()
    hook.close()
    compiled(2.0)
    jax.effects_barrier()
    assert create_trial(out).tensor("x").value(0) == 1
    from tensortrial.hooks.core.current_hook import del_hook

    del_hook()
    reference = weakref.ref(hook)
    hook = None
    gc.collect()
    assert reference() is None
