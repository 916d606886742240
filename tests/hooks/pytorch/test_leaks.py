"""A closed hook leaves no memory and no callbacks behind."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tensortrial.hooks.pytorch as tt  # noqa: E402
from support.programs import start_cold  # noqa: E402
from support.training import Net, evaluate, seeded, train  # noqa: E402
from tensortrial import create_trial  # noqa: E402


def callbacks_of(model: Any) -> list[object]:
    """Return all callbacks of a model and its parameters."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs")
    found = [each for module in model.modules() for kind in kinds for each in getattr(module, kind)]
    return found + [each for p in model.parameters() for each in p._post_accumulate_grad_hooks or ()]


def test_no_callback_is_left_on_a_model_once_its_hook_is_closed(make_hook: Any) -> None:
    hook, net, loss = make_hook(save_all=True), seeded(), nn.CrossEntropyLoss()
    hook.register_module(net)
    hook.register_loss(loss)
    train(net, 1, loss)
    kept = [net.register_forward_hook(lambda *_: None), net.fc1.weight.register_post_accumulate_grad_hook(print)]
    assert len(callbacks_of(net)) > 10
    hook.close()
    hook.close()
    assert callbacks_of(net) == [each.id for each in kept]
    assert callbacks_of(loss) == []


@pytest.mark.parametrize("closed", [True, False])
def test_a_model_is_freed_with_its_last_user(make_hook: Any, closed: bool) -> None:
    gc.collect()
    gc.disable()
    try:
        hook, net, loss = make_hook(save_all=True), seeded(), nn.CrossEntropyLoss()
        hook.register_module(net)
        hook.register_loss(loss)
        hook.get_collection("relu").add_module_tensors(net.relu)
        hook.get_collection("other").add_module_tensors(Net())
        train(net, 2, loss)
        gone = [weakref.ref(each) for each in (net, net.fc1, loss)]
        if closed:
            hook.close()
        del net, loss
        assert [each() for each in gone] == [None] * 3
    finally:
        gc.enable()
    evaluate(Net())


def test_a_run_without_a_hook_goes_on_until_its_model_is_gone(out: str) -> None:
    def prepared() -> Any:
        net = seeded()
        hook = tt.Hook(out, save_config=tt.SaveConfig(save_interval=1), include_collections=["weights"])
        hook.register_module(net)
        return net

    def make_another_hook(number: int) -> None:
        gc.collect()
        tt.Hook(f"{out}-{number}").close()  # which closes the runs of hooks that are gone
        tt.set_hook(None)

    net = prepared()
    tt.set_hook(None)
    make_another_hook(2)
    evaluate(net)
    del net
    make_another_hook(3)
    trial = create_trial(out)
    assert trial.steps() == [0]
    assert trial.loaded_all_steps


def test_a_container_lives_as_long_as_its_parts(make_hook: Any, out: str) -> None:
    hook, parts = make_hook(include_collections=["weights"]), [seeded(), seeded()]
    hook.register_module(nn.ModuleList(parts))
    gc.collect()
    with hook.step():
        evaluate(parts[0])
    hook.close()
    assert "ModuleList_1.fc1.weight" in create_trial(out).tensor_names()


PROGRAM = """
    import torch
    from torch import nn
    import tensortrial.hooks.pytorch as tt
    from support.memory import resident_bytes

    def one(number):
        model = nn.Sequential(nn.Linear(1600, 1600), nn.Linear(1600, 1600))  # 20 MB
        hook = tt.Hook(f"run{number}", include_collections=["weights", "gradients"])
        hook.register_module(model)
        for _ in range(2):
            model(torch.ones(1, 1600)).sum().backward()
        hook.close()

    for number in range(2):
        one(number)
    before = resident_bytes()
    for number in range(2, 6):
        one(number)
    print(resident_bytes() - before)
"""


def test_models_of_a_sweep_leave_no_memory_behind(tmp_path: Path) -> None:
    # The models and their gradients are 4 times 40 MB.
    variables = {"MALLOC_TRIM_THRESHOLD_": "1000000", "MALLOC_MMAP_THRESHOLD_": "1000000"}  # read when Python starts
    with start_cold(PROGRAM, tmp_path, **variables) as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert int(out) < 60 << 20
