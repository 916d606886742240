"""The arrays that the JAX hook fetches: dtypes, donated and deleted arrays, shards, and that training does not wait."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

from support.made_hooks import closed  # noqa: E402
from tensortrial import ReductionConfig, create_trial  # noqa: E402
from tensortrial.errors import UnsupportedValue  # noqa: E402

several_devices = pytest.mark.skipif("len(jax.devices()) < 4", reason="JAX was started with fewer than 4 devices")


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int4", "int8", "uint32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float32", "complex64"],
)
def test_a_value_keeps_its_dtype(make_hook: Any, dtype: str) -> None:
    value = jnp.array([[0, 1, 2], [3, 1, 0]]).astype(dtype)
    hook = make_hook()
    hook.save_tree("weights", {"w": value, "scalar": value[0, 1], "empty": value[:0]}, 0)
    trial = closed(hook)
    found = trial.tensor("w").value(0)
    assert found.dtype == np.dtype(getattr(ml_dtypes, dtype, dtype))
    np.testing.assert_array_equal(found, np.asarray(value))
    assert trial.tensor("scalar").value(0) == np.asarray(value)[0, 1]
    assert trial.tensor("empty").value(0).shape == (0, 3)


def test_a_key_for_random_numbers_is_saved_as_its_data(make_hook: Any) -> None:
    keys = jax.random.split(jax.random.key(7), 3)
    hook = make_hook()
    hook.save_tree("state", {"keys": keys, "old": jax.random.PRNGKey(1)}, 0)
    hook.save_tensor("key", keys[0], step=0)
    trial = closed(hook)
    np.testing.assert_array_equal(trial.tensor("state/keys").value(0), jax.random.key_data(keys))
    np.testing.assert_array_equal(trial.tensor("key").value(0), jax.random.key_data(keys[0]))
    np.testing.assert_array_equal(trial.tensor("state/old").value(0), [0, 1])


def test_an_array_that_is_donated_after_the_call_is_saved(make_hook: Any) -> None:
    update = jax.jit(lambda params: jax.tree.map(lambda each: each + 1, params), donate_argnums=0)
    params = {"w": jnp.zeros((64, 64)), "b": jnp.zeros(3)}
    hook = make_hook()
    for step in range(20):
        hook.save_tree("weights", params, step)
        hook.log({"sum": params["b"].sum()}, step=step)
        before, params = params, update(params)
        assert before["w"].is_deleted()
    trial = closed(hook)
    for step in range(20):
        assert (trial.tensor("w").value(step) == step).all()
        assert (trial.tensor("b").value(step) == step).all()
        assert trial.tensor("sum").value(step) == 3 * step


@pytest.mark.parametrize("method", ["tree", "tensor", "scalar", "stacked"])
def test_an_array_that_was_donated_before_is_refused_in_a_sentence(make_hook: Any, method: str) -> None:
    value = jnp.ones(1)
    jax.jit(lambda x: x + 1, donate_argnums=0)(value)
    hook = make_hook()
    call = {
        "tree": lambda: hook.save_tree("weights", {"w": value}, 0),
        "tensor": lambda: hook.save_tensor("w", value, step=0),
        "scalar": lambda: hook.log({"w": value}, step=0),
        "stacked": lambda: hook.log_stacked({"w": value}),
    }[method]
    with pytest.raises(UnsupportedValue, match=r"has been deleted, because.*donated.*save it before that call"):
        call()
    assert hook.recorder.active


def test_training_does_not_wait_for_a_result(make_hook: Any) -> None:
    @jax.jit
    def slow(x: Any) -> Any:
        return jax.lax.fori_loop(0, 400, lambda _, each: jnp.tanh(each @ each), x)

    x = jnp.ones((300, 300))
    hook = make_hook()
    hook.save_tree("weights", {"w": slow(x)}, 0)
    hook.log({"total": slow(x).sum()}, step=0)
    slow(x).block_until_ready()
    result = slow(x)
    total = result.sum()
    hook.save_tree("weights", {"w": result}, 1)
    hook.save_tensor("t", result, step=1)
    hook.log({"total": total}, step=1)
    assert not result.is_ready()
    trial = closed(hook)
    np.testing.assert_array_equal(trial.tensor("w").value(1), np.asarray(result))
    np.testing.assert_array_equal(trial.tensor("t").value(1), np.asarray(result))
    assert trial.tensor("total").value(1) == float(total)


def test_statistics_are_those_of_the_values(make_hook: Any, out: str) -> None:
    hook = make_hook(reduction_config=ReductionConfig(["min", "max", "nan_count"]))
    hook.save_tree("weights", {"w": jnp.array([3.0, jnp.nan, -1.0])}, 0)
    found = closed(hook).tensor("w").reduction_values(0)
    assert found[("nan_count", False)] == 1
    assert create_trial(out).tensor("w").shape(0) == (3,)


def test_numbers_of_any_dtype_are_scalars(make_hook: Any, out: str) -> None:
    hook = make_hook()
    numbers = {"f": jnp.float32(0.25), "b": jnp.bfloat16(1.5), "i": jnp.int32(3), "o": jnp.ones((1, 1)), "p": 2.0}
    hook.log(numbers, step=0)
    hook.save_scalar("later", jnp.float32(4), sm_metric=True, timestamp=1000.5, step=0)
    trial = closed(hook)
    rows = dict(trial.sql("select name, value from scalars").fetchall())
    assert rows == {"f": 0.25, "b": 1.5, "i": 3, "o": 1, "p": 2, "later": 4}
    assert trial.sql("select epoch_ms(saved_at) from tensors where name = 'later'").fetchall() == [(1000500,)]
    for value in (jnp.ones(2), jnp.complex64(1), jax.random.key(0), "x", {"a": 1}):
        with pytest.raises(UnsupportedValue, match="a scalar must be a"):
            make_hook(f"{out}-bad", dry_run=False).log({"bad": value}, step=0)


@several_devices
@pytest.mark.parametrize("spec", [("a", "b"), ("a", None), (None, None), (("a", "b"), None)], ids=str)
def test_a_sharded_array_is_saved_whole_by_the_process_that_has_all_of_it(make_hook: Any, spec: Any) -> None:
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("a", "b"))
    value = jax.device_put(jnp.arange(32.0).reshape(8, 4), NamedSharding(mesh, PartitionSpec(*spec)))
    update = jax.jit(lambda x: x + 1, donate_argnums=0)
    hook = make_hook()
    for step in range(3):
        hook.save_tree("weights", {"w": value}, step)
        value = update(value)
    trial = closed(hook)
    for step in range(3):
        np.testing.assert_array_equal(trial.tensor("w").value(step), np.arange(32.0).reshape(8, 4) + step)


def test_a_run_that_is_not_closed_is_whole(tmp_path: Any) -> None:
    import subprocess
    import sys

    program = (
        "import jax.numpy as jnp\nimport tensortrial.hooks.jax as tt\nhook = tt.Hook('run')\n"
        "for step in range(3):\n    hook.log({'loss': jnp.float32(step)}, step=step)\n"
        "    hook.save_tree('weights', {'w': jnp.ones(1000)}, step)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    trial = create_trial(tmp_path / "run")
    assert trial.loaded_all_steps
    assert trial.tensor("loss").steps() == [0, 1, 2]
