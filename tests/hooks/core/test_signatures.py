"""The hooks of all frameworks save tensors, and choose modes and steps, by the same arguments.

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


@pytest.mark.parametrize("name", HOOKS)
@pytest.mark.parametrize(
    "method", ["begin_step", "end_step", "log", "resume_at", "save_scalar", "save_tensor", "set_mode", "step"]
)
def test_a_method_that_all_hooks_have_takes_the_same_arguments(name: str, method: str) -> None:
    expected, found = own(BASE).members[method], own(name).all_members[method]
    assert isinstance(expected, griffe.Function)
    found = found.final_target if isinstance(found, griffe.Alias) else found
    assert isinstance(found, griffe.Function)
    assert parameters(found) == parameters(expected)


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
