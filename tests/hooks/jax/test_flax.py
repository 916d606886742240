"""The JAX hook in training loops with Flax, Linen and NNX, and Optax: digits of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
flax = pytest.importorskip("flax")
optax = pytest.importorskip("optax")
datasets = pytest.importorskip("sklearn.datasets")
import jax.numpy as jnp  # noqa: E402
from flax import linen, nnx  # noqa: E402
from flax.training.train_state import TrainState  # noqa: E402

from support.made_hooks import closed  # noqa: E402


@pytest.fixture(scope="module")
def digits() -> tuple[Any, Any]:
    x, y = datasets.load_digits(return_X_y=True)
    return jnp.asarray(x[:256] / 16, jnp.float32), jnp.asarray(y[:256])


class LinenNet(linen.Module):
    @linen.compact
    def __call__(self, x: Any) -> Any:
        x = linen.relu(linen.Dense(16)(x))
        self.sow("intermediates", "hidden", x)
        kernel_init = linen.with_partitioning(linen.initializers.lecun_normal(), (None, "model"))
        return linen.Dense(10, kernel_init=kernel_init)(linen.BatchNorm(use_running_average=False)(x))


def test_a_linen_loop_saves_parameters_gradients_updates_and_intermediates(make_hook: Any, digits: Any) -> None:
    x, y = digits
    model = LinenNet()
    variables = model.init(jax.random.key(0), x)
    state = TrainState.create(apply_fn=model.apply, params=variables["params"], tx=optax.adam(1e-2))

    @jax.jit
    def train_step(state: Any, statistics: Any) -> Any:
        def loss_of(params: Any) -> Any:
            logits, changed = state.apply_fn(
                {"params": params, "batch_stats": statistics}, x, mutable=["batch_stats", "intermediates"]
            )
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), changed

        (loss, changed), gradients = jax.value_and_grad(loss_of, has_aux=True)(state.params)
        updates, opt_state = state.tx.update(gradients, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        state = state.replace(step=state.step + 1, params=params, opt_state=opt_state)
        return state, changed, loss, gradients, updates

    hook = make_hook()
    statistics, losses = variables["batch_stats"], []
    for step in range(5):
        before = state.params
        state, changed, loss, gradients, updates = train_step(state, statistics)
        statistics = changed["batch_stats"]
        losses.append(float(loss))
        hook.log({"loss": loss}, step=step)
        hook.save_tree("weights", before, step)
        hook.save_tree("gradients", gradients, step)
        hook.save_tree("updates", updates, step)
        hook.save_tree("intermediates", changed["intermediates"], step)
        hook.save_tree("batch_stats", statistics, step)
        hook.save_tree("optimizer_variables", state.opt_state, step)
        hook.save_tree("state", state, step)
    trial = closed(hook)
    assert [trial.tensor("loss").value(step) for step in range(5)] == losses
    assert losses[-1] < losses[0]
    assert trial.tensor_names(collection="weights") == [
        *("BatchNorm_0/bias", "BatchNorm_0/scale", "Dense_0/bias", "Dense_0/kernel", "Dense_1/bias", "Dense_1/kernel")
    ]
    assert trial.tensor("intermediates/hidden/0").value(0).shape == (256, 16)
    assert "batch_stats/BatchNorm_0/mean" in trial.tensor_names()
    assert "optimizer_variables/0/mu/Dense_1/kernel" in trial.tensor_names()
    assert trial.tensor("state/step").value(4) == 5
    for name in ("Dense_0/kernel", "Dense_1/kernel"):
        weight, update, after = (
            trial.tensor(name).value(3),
            trial.tensor(f"update/{name}").value(3),
            trial.tensor(name).value(4),
        )
        np.testing.assert_allclose(weight + update, after, rtol=1e-5, atol=1e-7)
        assert np.abs(trial.tensor(f"gradient/{name}").value(3)).max() > 0


class NNXNet(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.layers = nnx.List([nnx.Linear(64, 16, rngs=rngs), nnx.Linear(16, 10, rngs=rngs)])
        self.dropout = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        hidden = nnx.relu(self.layers[0](x))
        self.sow(nnx.Intermediate, "hidden", hidden)
        return self.layers[1](self.dropout(hidden))


@pytest.mark.filterwarnings("ignore:Using 'Module.sow:DeprecationWarning")
def test_an_nnx_loop_saves_states_with_the_names_of_their_variables(make_hook: Any, digits: Any) -> None:
    x, y = digits
    model = NNXNet(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.sgd(0.1, momentum=0.9), wrt=nnx.Param)

    @nnx.jit
    def train_step(model: Any, optimizer: Any) -> Any:
        def loss_of(model: Any) -> Any:
            return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

        loss, gradients = nnx.value_and_grad(loss_of)(model)
        optimizer.update(model, gradients)
        return loss, gradients, nnx.pop(model, nnx.Intermediate)

    hook = make_hook()
    for step in range(3):
        before = nnx.state(model, nnx.Param)
        hook.save_tree("weights", before, step)
        kernel = np.asarray(model.layers[0].kernel[...])
        loss, gradients, intermediates = train_step(model, optimizer)
        hook.save_tree("gradients", gradients, step)
        hook.save_tree("intermediates", intermediates, step)
        hook.save_tree("module", model, step)
        hook.save_tree("optimizer_variables", nnx.state(optimizer), step)
        hook.log({"loss": loss}, step=step)
    trial = closed(hook)
    names = [f"layers/{layer}/{kind}" for layer in (0, 1) for kind in ("bias", "kernel")]
    assert trial.tensor_names(collection="weights") == names
    assert trial.tensor_names(collection="gradients") == [f"gradient/{name}" for name in names]
    np.testing.assert_array_equal(trial.tensor("layers/0/kernel").value(2), kernel)
    assert trial.tensor("intermediates/hidden/0").value(2).shape == (256, 16)
    assert {"module/layers/0/kernel", "module/dropout/rngs/key"} <= set(trial.tensor_names())
    assert "optimizer_variables/opt_state/0/trace/layers/0/kernel" in trial.tensor_names()


def test_states_of_optax_without_arrays_are_passed_over(make_hook: Any) -> None:
    chain = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.masked(optax.trace(0.9), {"a": True, "b": False}),
        optax.scale_by_schedule(optax.constant_schedule(0.1)),
    )
    hook = make_hook()
    hook.save_tree("optimizer_variables", chain.init({"a": jnp.ones(2), "b": jnp.ones(3)}), 0)
    assert closed(hook).tensor_names() == [
        "optimizer_variables/1/inner_state/trace/a",
        "optimizer_variables/2/count",
    ]
