"""Scripts for smdebug that inherit from its hooks and override what is saved of a module."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from tensortrial.errors import ConfigurationError  # noqa: E402
from tensortrial.hooks.core import current_hook  # noqa: E402
from tensortrial.smdebug.trials import Trial, create_trial  # noqa: E402

smd = importlib.import_module("smdebug.pytorch")


@pytest.fixture(autouse=True)
def _no_hook() -> Iterator[None]:
    yield
    current_hook.del_hook()


def train(hook: Any, steps: int = 3, modes: Any = (smd.modes.TRAIN,)) -> Trial:
    net, loss = nn.Sequential(nn.Linear(4, 2), nn.ReLU()), nn.MSELoss()
    hook.register_module(net)
    hook.register_loss(loss)
    for mode in modes:
        hook.set_mode(mode)
        for _ in range(steps):
            image = torch.ones(3, 4, requires_grad=True)
            if hasattr(hook, "image_gradients"):
                hook.image_gradients(image)
            loss(net(image), torch.zeros(3, 2)).backward()
    hook.close()
    return create_trial(hook.out_dir)


class Activations(smd.Hook):
    """As a published script for maps of class activations has it."""

    def image_gradients(self, image: Any) -> None:
        image.register_hook(self.backward_hook("image"))

    def forward_hook(self, module: Any, inputs: Any, outputs: Any) -> None:
        name = module._module_name
        assert self.module_maps[module] == name
        self._write_inputs(name, inputs)
        if self.mode == smd.modes.EVAL:
            outputs.register_hook(self.backward_hook(name + "_output"))
        if isinstance(module, nn.ReLU):
            self._write_outputs(name + ".running", outputs)
        self._write_outputs(name, outputs)
        self.last_saved_step = self.step


def test_an_overridden_forward_hook_saves_what_it_saved_there(tmp_path: Path) -> None:
    hook = Activations(
        str(tmp_path / "run"),
        save_config=smd.SaveConfig(save_interval=2),
        include_collections=["weights", "gradients"],
        include_regex=["relu", "output", "image", "running"],
    )
    trial = train(hook, modes=(smd.modes.TRAIN, smd.modes.EVAL))
    # The names and steps are those that smdebug 1.0.34 printed for this script.
    both, training, evaluation = [0, 2, 3, 5], [0, 2], [3, 5]
    assert {name: trial.tensor(name).steps() for name in trial.tensor_names()} == {
        "0_output_0": both,
        "1.running_output_0": both,
        "1_output_0": both,
        "MSELoss_output_0": both,
        "Sequential_0.weight": both,
        "Sequential_output_0": both,
        "gradient/0_output": evaluation,
        "gradient/1_output": evaluation,
        "gradient/MSELoss_output": evaluation,
        "gradient/Sequential_0.bias": training,
        "gradient/Sequential_0.weight": training,
        "gradient/Sequential_output": evaluation,
        "gradient/image": both,
    }
    assert trial.tensor("gradient/image").value(0).shape == (3, 4)


def test_an_overridden_forward_hook_may_save_any_array(tmp_path: Path) -> None:
    class Extra(smd.Hook):
        def forward_hook(self, module: Any, inputs: Any, outputs: Any) -> None:
            super().forward_hook(module, inputs, outputs)
            if isinstance(module, nn.Linear):
                self._write_raw_tensor_simple("extra", outputs * 2)
                self._save_for_tensor("norm", outputs.norm())

    options = {"save_config": smd.SaveConfig(save_interval=2), "include_regex": ["0_output", "0_input", "norm"]}
    trial = train(Extra(str(tmp_path / "run"), **options))
    plain = train(smd.Hook(str(tmp_path / "plain"), **options))
    assert trial.tensor("extra").steps() == trial.tensor("norm").steps() == [0, 2]
    assert (trial.tensor("extra").value(0) == 2 * trial.tensor("0_output_0").value(0)).all()
    # What the base class saves is saved once, and under the same names.
    assert set(trial.tensor_names()) - {"extra", "norm"} == set(plain.tensor_names())


def test_an_overridden_forward_hook_may_save_nothing(tmp_path: Path) -> None:
    class Nothing(smd.Hook):
        def forward_hook(self, module: Any, inputs: Any, outputs: Any) -> None:
            pass

    trial = train(Nothing(str(tmp_path / "run"), include_collections=["weights"], include_regex="output"))
    assert trial.tensor_names() == ["Sequential_0.weight"]


def test_a_closed_hook_leaves_no_function_on_the_modules(tmp_path: Path) -> None:
    hook = Activations(str(tmp_path / "run"))
    net = nn.Linear(4, 2)
    hook.register_module(net)
    assert len(net._forward_hooks) == 2
    hook.register_module(net)
    assert len(net._forward_hooks) == 2
    hook.close()
    assert not net._forward_hooks


def test_what_is_not_called_here_is_refused_with_the_way_to_do_it(tmp_path: Path) -> None:
    class Earlier(smd.Hook):
        def forward_pre_hook(self, module: Any, inputs: Any) -> None:
            pass

    with pytest.raises(ConfigurationError, match=r"Earlier overrides forward_pre_hook.*register_forward_pre_hook"):
        Earlier(str(tmp_path / "run"))
