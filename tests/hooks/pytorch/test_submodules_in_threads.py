"""Threads that call modules of a model while another one trains it."""

from __future__ import annotations

import threading
from typing import Any

import torch

from tensortrial import create_trial
from tensortrial.hooks.pytorch import Hook, SaveConfig

BEGUN, CONTINUES = threading.Event(), threading.Event()


class Waiting(torch.Tensor):
    """A tensor whose values are read only once the next step has begun."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.detach:
            BEGUN.set()
            assert CONTINUES.wait(60)
        return super().__torch_function__(func, types, args, kwargs or {})


class Part(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = Part()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_a_value_of_a_step_that_was_closed_meanwhile_is_not_saved_at_a_step_that_is_not_due(out: str) -> None:
    model = Net()
    hook = Hook(out, include_regex=["_output_"], save_config=SaveConfig(save_interval=2))
    hook.register_module(model)
    model(torch.ones(1))
    thread = threading.Thread(target=lambda: model.part(torch.ones(3).as_subclass(Waiting)))
    thread.start()
    assert BEGUN.wait(60)
    model(torch.ones(1))  # step 1, at which nothing is due
    CONTINUES.set()
    thread.join()
    model(torch.ones(1))
    hook.close()
    assert create_trial(out).steps() == [0, 2]
