"""The trees that a training loop passes to the JAX hook: their names, their steps, and what cannot be saved."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from support.made_hooks import closed  # noqa: E402
from tensortrial import SaveConfig, create_trial  # noqa: E402
from tensortrial.errors import ConfigurationError, UnsupportedValue  # noqa: E402
from tensortrial.hooks.jax import Hook  # noqa: E402
from tensortrial.mode import modes  # noqa: E402


class Pair(NamedTuple):
    first: Any
    second: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    kernel: Any
    name: str = dataclasses.field(metadata={"static": True}, default="layer")


@jax.tree_util.register_pytree_node_class
class Opaque:
    """A node whose children have no names."""

    def __init__(self, *children: Any) -> None:
        self.children = children

    def tree_flatten(self) -> tuple[Any, None]:
        return self.children, None

    @classmethod
    def tree_unflatten(cls, _: None, children: Any) -> Opaque:
        return cls(*children)


def names_of(out: str) -> list[str]:
    return create_trial(out).tensor_names()


def test_a_leaf_is_named_by_its_path(make_hook: Any, out: str) -> None:
    tree = {"dense": Layer(jnp.ones(2)), "pair": Pair([jnp.ones(1), None], {7: 1.5}), "opaque": Opaque(jnp.ones(1))}
    hook = make_hook()
    hook.save_tree("weights", tree, 0)
    hook.save_tree("gradients", {"dense": Layer(jnp.ones(2))}, 0)
    hook.save_tree("updates", {"dense": Layer(jnp.ones(2))}, 0)
    hook.save_tree("moments", (jnp.ones(1), jnp.zeros(1)), 0)
    hook.save_tree("state", jnp.ones(3), 0)
    hook.close()
    assert set(names_of(out)) == {
        *("dense/kernel", "pair/first/0", "pair/second/7", "opaque/0"),
        *("gradient/dense/kernel", "update/dense/kernel", "moments/0", "moments/1", "state"),
    }
    trial = create_trial(out)
    assert trial.tensor("pair/second/7").value(0) == 1.5
    assert trial.tensor_names(collection="updates") == ["update/dense/kernel"]
    rows = trial.sql("select name, parameter from tensors where parameter is not null").fetchall()
    assert rows == [("gradient/dense/kernel", "dense/kernel")]


def test_a_tree_is_saved_at_the_steps_of_the_save_configuration(make_hook: Any) -> None:
    hook = make_hook(save_config=SaveConfig(save_interval=3))
    for step in range(7):
        hook.save_tree("gradients", {"w": jnp.full(2, step)}, step)
        hook.log({"loss": jnp.float32(step)}, step=step)
    trial = closed(hook)
    assert trial.tensor("gradient/w").steps() == [0, 3, 6]
    assert trial.tensor("gradient/w").value(3).tolist() == [3, 3]
    assert trial.tensor("loss").steps() == list(range(7))
    assert "loss" in trial.tensor_names(collection="losses")


def test_a_tree_of_the_same_collection_begins_the_next_step(make_hook: Any) -> None:
    hook = make_hook()
    for value in range(3):
        hook.save_tree("weights", {"w": jnp.full(2, value)})
        hook.save_tree("gradients", {"w": jnp.full(2, -value)})
    trial = closed(hook)
    for name, sign in (("w", 1), ("gradient/w", -1)):
        assert [int(trial.tensor(name).value(step)[0]) * sign for step in trial.tensor(name).steps()] == [0, 1, 2]


def test_a_tree_joins_a_past_step(make_hook: Any) -> None:
    hook = make_hook(save_config=SaveConfig(save_interval=2))
    for step in range(4):
        hook.save_tree("weights", {"w": jnp.full(2, step)}, step)
    for step in (1, 2):
        hook.save_tree("averages", {"w": jnp.full(2, 10 * step)}, step)
    trial = closed(hook)
    assert trial.tensor("averages/w").steps() == [2]
    assert trial.tensor("averages/w").value(2).tolist() == [20, 20]
    assert trial.tensor("w").steps() == [0, 2]


def test_include_collections_chooses_among_the_trees(make_hook: Any, out: str) -> None:
    hook = make_hook(include_collections=["gradients"], include_regex="^moments/a")
    for collection in ("weights", "gradients", "moments"):
        hook.save_tree(collection, {"a": jnp.ones(2), "b": jnp.ones(2)}, 0)
    hook.close()
    assert set(names_of(out)) == {"gradient/a", "gradient/b", "moments/a"}


def test_gradients_are_left_out_of_an_evaluation(make_hook: Any) -> None:
    hook = make_hook()
    for mode in (modes.TRAIN, modes.EVAL):
        hook.save_tree("gradients", {"w": jnp.ones(2)}, 0, mode=mode)
        hook.save_tree("losses", {"loss": jnp.ones(())}, 0, mode=mode)
    trial = closed(hook)
    assert trial.tensor("gradient/w").steps(modes.TRAIN) == [0]
    assert trial.tensor("gradient/w").steps(modes.EVAL) == []
    assert trial.tensor("loss").steps(modes.EVAL) == [0]


def test_a_tree_that_changes_gets_names_for_its_new_leaves(make_hook: Any, out: str) -> None:
    hook = make_hook()
    for step in range(80):
        hook.save_tree("seen", {f"x{step}": jnp.ones(1)}, step)
    hook.close()
    assert len(names_of(out)) == 80


def test_a_tree_whose_metadata_cannot_be_compared_is_saved_at_each_step(make_hook: Any) -> None:
    hook = make_hook()
    for step in range(3):
        hook.save_tree("seen", [Layer(jnp.ones(1), np.ones(2)), Layer(jnp.ones(1), [3])], step)  # type: ignore[arg-type]
    trial = closed(hook)
    assert [trial.tensor(name).steps() for name in trial.tensor_names()] == [[0, 1, 2]] * 2


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({1: jnp.ones(1), "1": jnp.ones(1)}, "cannot flatten the tree, a dict"),
        ([{"a": {"b": jnp.ones(1)}, "a/b": jnp.ones(1)}], "another leaf of the tree has this name"),
        ({"x": object()}, "hold Python objects"),
        ({"bad\udc00": jnp.ones(1)}, "cannot be a tensor's name"),
    ],
    ids=["keys", "twice", "object", "surrogate"],
)
def test_a_tree_that_cannot_be_saved_leaves_the_hook_on(
    make_hook: Any, out: str, tree: Any, message: str, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    with pytest.raises(UnsupportedValue, match=message):
        make_hook(f"{out}-strict").save_tree("weights", tree, 0)
    monkeypatch.delenv("TENSORTRIAL_STRICT")
    hook = make_hook()
    for step in range(2):
        hook.save_tree("weights", tree, step)
        hook.save_tree("gradients", {"w": jnp.ones(1)}, step)
    hook.close()
    assert [message in record.getMessage() for record in caplog.records] == [True]
    assert create_trial(out).tensor("gradient/w").steps() == [0, 1]


@pytest.mark.parametrize("collection", ["", 3, None], ids=str)
def test_a_bad_collection_is_refused(make_hook: Any, collection: Any) -> None:
    hook = make_hook()
    with pytest.raises(ConfigurationError):
        hook.save_tree(collection, {"w": jnp.ones(1)}, 0)
    assert hook.recorder.active


def test_a_bad_step_is_refused(make_hook: Any) -> None:
    hook = make_hook()
    with pytest.raises(ConfigurationError, match="step must be an integer"):
        hook.save_tree("weights", {"w": jnp.ones(1)}, "3")
    assert hook.recorder.active


def test_a_hook_that_is_off_flattens_nothing(out: str) -> None:
    def fail(*_: Any) -> Any:
        raise AssertionError("flattened")

    class Node:
        pass

    jax.tree_util.register_pytree_node(Node, fail, fail)
    hook = Hook(out, dry_run=True)
    hook.save_tree("weights", Node(), 0)
    with Hook(out, save_config=SaveConfig(save_interval=10)) as hook:
        hook.save_tree("weights", {"w": np.ones(1)}, 0)
        for step in range(1, 10):
            hook.save_tree("weights", Node(), step)
    assert create_trial(out).steps() == [0]


@pytest.mark.parametrize("chosen", [None, ["intermediates"]])
def test_a_tree_of_a_collection_of_its_own_is_saved_without_a_warning(
    make_hook: Any, out: str, caplog: Any, chosen: list[str] | None
) -> None:
    hook = make_hook(save_config=SaveConfig(save_interval=1), include_collections=chosen)
    hook.save_tree("intermediates", {"hidden": jnp.ones(2)}, step=0)
    closed(hook)
    assert names_of(out) == ["intermediates/hidden"]
    assert not [each for each in caplog.records if "saves nothing" in each.getMessage()]
