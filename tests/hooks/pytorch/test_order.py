"""The index says in which order a step computed its tensors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import tensortrial
import tensortrial.hooks.pytorch as tt
from tensortrial.config.save_config import SaveConfig

FORWARD = [
    "Net_2.weight",
    "Net_0.weight",
    "Net_input_0",
    "2_input_0",
    "2_output_0",
    "1_input_0",
    "1_output_0",
    "0_input_0",
    "0_output_0",
    "Net_output_0",
    "MSELoss_input_0",
    "MSELoss_input_1",
    "MSELoss_output_0",
]
BACKWARD = ["gradient/Net_0.weight", "gradient/Net_2.weight"]


class Net(nn.Module):
    """Runs its modules in another order than that of their registration."""

    def __init__(self) -> None:
        super().__init__()
        self.register_module("2", nn.Linear(4, 4, bias=False))
        self.register_module("1", nn.ReLU())
        self.register_module("0", nn.Linear(4, 1, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for name in ("2", "1", "0"):
            x = self.get_submodule(name)(x)
        return x


def train(out: Path, compiled: bool, steps: int = 3) -> None:
    torch.manual_seed(0)
    model, loss = Net(), nn.MSELoss()
    hook = tt.Hook(str(out), save_all=True, save_config=SaveConfig(save_interval=1))
    hook.register_module(model)
    hook.register_loss(loss)
    run = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
    for _ in range(steps):
        model.zero_grad()
        loss(run(torch.randn(8, 4)), torch.randn(8, 1)).backward()
    hook.close()


def names_in_order(out: Path, step: int) -> list[str]:
    query = 'select name, "order" from tensors where global_step = $step order by "order"'
    with tensortrial.create_trial(out) as trial:
        rows = trial.sql(query, {"step": step}).fetchall()
    assert [place for _, place in rows] == list(range(len(rows)))
    return [name for name, _ in rows]


def test_tensors_are_in_the_order_of_execution(tmp_path: Path) -> None:
    train(tmp_path / "run", compiled=False)
    assert names_in_order(tmp_path / "run", 2) == FORWARD + BACKWARD


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_tensors_of_compiled_code_are_in_the_order_of_execution(tmp_path: Path) -> None:
    train(tmp_path / "run", compiled=True)
    found = names_in_order(tmp_path / "run", 2)
    assert found[: len(FORWARD)] == FORWARD
    # A compiled backward returns the gradients of its graph together.
    assert sorted(found[len(FORWARD) :]) == BACKWARD


def test_a_tensor_that_is_saved_twice_has_the_place_of_its_last_value(tmp_path: Path) -> None:
    hook = tt.Hook(str(tmp_path / "run"))
    for name in ("first", "second", "first", "third"):
        hook.save_tensor(name, torch.ones(3))
    hook.close()
    assert names_in_order(tmp_path / "run", 0) == ["second", "first", "third"]


def test_the_order_stays_when_a_run_is_compacted(tmp_path: Path) -> None:
    train(tmp_path / "run", compiled=False, steps=4)
    tensortrial.compact(tmp_path / "run")
    assert names_in_order(tmp_path / "run", 3) == FORWARD + BACKWARD
