"""The hooks of all frameworks, also those for smdebug's scripts, save tensors and choose steps by the same arguments.

griffe reads their sources, because not every framework is installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import griffe
import pytest

import tensortrial
from support.public_names import load_package

BASE = "tensortrial.hooks.core.base_hook.BaseHook"
HOOKS = [
    "tensortrial.hooks.catboost.hook.Hook",
    "tensortrial.hooks.jax.hook.Hook",
    "tensortrial.hooks.keras.hook.KerasHook",
    "tensortrial.hooks.lightgbm.hook.Hook",
    "tensortrial.hooks.mxnet.hook.Hook",
    "tensortrial.hooks.plain.run.Run",
    "tensortrial.hooks.pytorch.hook.Hook",
    "tensortrial.hooks.session.estimator.EstimatorHook",
    "tensortrial.hooks.session.hook.SessionHook",
    "tensortrial.hooks.sklearn.hook.Hook",
    "tensortrial.hooks.xgboost.hook.Hook",
]
SCRIPT_HOOKS = [
    "tensortrial.smdebug.keras.KerasHook",
    "tensortrial.smdebug.mxnet.Hook",
    "tensortrial.smdebug.pytorch.Hook",
    "tensortrial.smdebug.tensorflow.EstimatorHook",
    "tensortrial.smdebug.tensorflow.SessionHook",
    "tensortrial.smdebug.xgboost.Hook",
]
SHARED = [
    *("begin_step", "end_step", "log", "resume_at", "save_image", "save_scalar", "save_tensor", "save_tensors"),
    "set_mode",
]


def package() -> griffe.Module:
    return load_package(Path(tensortrial.__file__).parents[1])


def own(name: str) -> griffe.Class:
    found = package()[name.removeprefix("tensortrial.")]
    assert isinstance(found, griffe.Class)
    return found


def classes(owner: griffe.Module) -> Iterator[griffe.Class]:
    for member in owner.members.values():
        if isinstance(member, griffe.Class):
            yield member
        elif isinstance(member, griffe.Module):
            yield from classes(member)


def parameters(method: griffe.Function) -> list[tuple[str, str, str, str]]:
    """Return the name, kind, annotation and default of each parameter."""
    return [(each.name, str(each.kind), str(each.annotation), str(each.default)) for each in method.parameters]


def test_the_list_of_hooks_has_every_hook() -> None:
    hooks = package()["hooks"]
    found = [each.path for each in classes(hooks) if any(base.path == BASE for base in each.mro())]
    inner = {each.path for name in HOOKS for each in own(name).mro()} - set(HOOKS)
    assert sorted(set(found) - inner) == HOOKS


def function(owner: str, method: str) -> griffe.Function:
    found = own(owner).all_members[method]
    found = found.final_target if isinstance(found, griffe.Alias) else found
    assert isinstance(found, griffe.Function)
    return found


@pytest.mark.parametrize(
    ("name", "method"),
    [
        *((name, method) for name in [*HOOKS, *SCRIPT_HOOKS] for method in SHARED),
        *((name, "step") for name in HOOKS),
        ("tensortrial.smdebug.hooks.StepNumber", "__call__"),  # the `step` of hooks for scripts
    ],
)
def test_a_method_that_all_hooks_have_takes_the_same_arguments(name: str, method: str) -> None:
    expected = function(BASE, method.replace("__call__", "step"))
    assert parameters(function(name, method)) == parameters(expected)


@pytest.mark.parametrize("name", [*HOOKS, *SCRIPT_HOOKS])
def test_save_tensor_accepts_the_documented_names_of_its_arguments(name: str) -> None:
    decorators = [str(each.value) for each in function(name, "save_tensor").decorators]
    assert "accepts_documented_names" in decorators


# The methods of hooks in smdebug's documents, with the names of their arguments there.
DOCUMENTED = {
    "add_collection": ["collection"],
    "close": [],
    "create_from_json_file": ["json_file_path"],
    "get_collection": ["name"],
    "get_collections": [],
    "save_scalar": ["name", "value", "sm_metric"],
}
DOCUMENTED_OF_ONE = {
    "keras.KerasHook": {
        "add_to_collection": ["collection_name", "variable"],
        "wrap_optimizer": ["optimizer"],
        "wrap_tape": ["tape"],
    },
    "mxnet.Hook": {"register_block": ["block"]},
    "pytorch.Hook": {"register_loss": ["loss_module"], "register_module": ["module"]},
    "tensorflow.EstimatorHook": {},
    "tensorflow.SessionHook": {
        "add_to_collection": ["collection_name", "variable"],
        "wrap_optimizer": ["optimizer"],
    },
    "xgboost.Hook": {},
}


@pytest.mark.parametrize("name", SCRIPT_HOOKS)
def test_a_hook_for_scripts_takes_the_arguments_of_the_documents(name: str) -> None:
    documented = DOCUMENTED | DOCUMENTED_OF_ONE[name.removeprefix("tensortrial.smdebug.")]
    found = {method: [each.name for each in function(name, method).parameters][1:] for method in documented}
    assert {method: found[method][: len(names)] for method, names in documented.items()} == documented


@pytest.mark.parametrize("name", HOOKS)
def test_every_mode_is_a_key_or_its_name(name: str) -> None:
    modes = {
        f"{method.name}({parameter.name})": str(parameter.annotation)
        for each in (own(name), *own(name).mro())
        for method in each.members.values()
        if isinstance(method, griffe.Function) and not method.name.startswith("_")
        for parameter in method.parameters
        if parameter.name == "mode"
    }
    assert modes
    assert set(modes.values()) <= {"ModeKeys | str", "ModeKeys | str | None"}, modes
