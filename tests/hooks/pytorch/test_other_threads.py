"""A hook that another thread closes while the training's thread is in the middle of a step."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tensortrial.hooks.pytorch as tt  # noqa: E402
from support.training import Net, batches, seeded  # noqa: E402
from tensortrial import create_trial  # noqa: E402

STEPS, LAST = 5, 2


class Copied(Net):
    """A network that calls a function while it is copied, which goes through the callbacks of its modules."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1.register_forward_pre_hook(Call())
        self.fc1.register_forward_hook(Call())


class Call:
    """A callback of the user, which calls a function once there is one."""

    then: Callable[[], None] | None = None

    def __call__(self, *_: Any) -> None:
        if Call.then is not None:
            Call.then()

    def __deepcopy__(self, memo: Any) -> Call:
        self()
        return Call()


def train(net: Any, moment: str, close: Callable[[], None], hook: Any = None) -> Any:
    """Train a copied network for some steps. At one of them, `close` is called at a moment."""

    def closing(name: str) -> Callable[..., None]:
        return lambda *_: close() if name == moment and step == LAST else None

    net.fc1.register_forward_pre_hook(closing("before a module"))
    net.fc1.register_forward_hook(closing("after a module"))
    net.fc1.weight.register_post_accumulate_grad_hook(closing("in backward"))
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    optimizer.register_step_pre_hook(closing("before an update"))
    optimizer.register_step_post_hook(closing("after an update"))
    if hook is not None:
        hook.register_module(net)
        hook.register_optimizer(optimizer)
    for step, (x, y) in enumerate(batches(STEPS)):

        def closure(x: Any = x, y: Any = y) -> Any:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            closing("in a closure")()
            return loss

        if moment == "while the model is copied" and step == LAST:
            Call.then = close
            copy.deepcopy(net)
            Call.then = None
        optimizer.step(closure)
    return net.state_dict()


MOMENTS = [
    "before a module",
    "after a module",
    "in backward",
    "before an update",
    "after an update",
    "in a closure",
    "while the model is copied",
]


@pytest.mark.parametrize(
    ("moment", "in_another_thread"),
    [*((each, True) for each in MOMENTS), ("after a module", False), ("before an update", False)],
)
def test_a_hook_may_be_closed_at_any_moment_of_a_step(out: str, moment: str, in_another_thread: bool) -> None:
    hook = tt.Hook(out, save_all=True, save_config=tt.SaveConfig(save_interval=1))

    def close() -> None:
        if in_another_thread:
            thread = threading.Thread(target=hook.close)
            thread.start()
            thread.join()
        else:
            hook.close()

    plain, net = seeded(Copied), seeded(Copied)
    expected = train(plain, moment, lambda: None)
    found = train(net, moment, close, hook)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    # The training's own thread has removed the callbacks.
    own = [each for module in net.modules() for each in (*module._forward_hooks, *module._forward_pre_hooks)]
    assert len(own) == sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in plain.modules())
    trial = create_trial(out)
    assert trial.damaged == {}
    assert trial.steps() == list(range(trial.steps()[-1] + 1))
    assert trial.steps()[-1] in (LAST - 1, LAST)


def test_an_optimizer_of_closed_hooks_keeps_no_callback_of_them(make_hook: Any) -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        hook = make_hook(dry_run=True)
        hook.register_optimizer(optimizer)
        hook.close()
    assert len(optimizer._optimizer_step_pre_hooks) == 1
