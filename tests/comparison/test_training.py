"""Defects planted into real training, each of which a comparison names at its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tensortrial  # noqa: E402
import tensortrial.hooks.pytorch as tt  # noqa: E402
from support.gloo import launch  # noqa: E402
from support.training import batches  # noqa: E402

STEPS, BAD = 8, 5
Batch = tuple[Any, Any]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(64, 16)
        self.dropout = nn.Dropout(0.2)
        self.fc2 = nn.Linear(16, 10)
        self.in_bfloat16 = False

    def forward(self, x: Any) -> Any:
        x = self.dropout(self.fc1(x).relu())
        with torch.autocast("cpu", torch.bfloat16, enabled=self.in_bfloat16):
            x = self.fc2(x)
        return x.float()


def train(folder: Path, spoil: Callable[[Any, Batch], Batch] = lambda net, batch: batch) -> Path:
    """Train a network, and let `spoil` change it or its batch at one step."""
    torch.manual_seed(0)
    net, loss = Net(), nn.CrossEntropyLoss()
    # Digests only, and raw values of nothing but the outputs of modules.
    hook = tt.Hook(
        str(folder),
        save_all=True,
        save_config=tt.SaveConfig(save_interval=1),
        reduction_config=tt.ReductionConfig(digest=True),
    )
    hook.register_module(net)
    hook.register_loss(loss)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for step, (x, y) in enumerate(batches(STEPS)):
        if step == BAD:
            x, y = spoil(net, (x, y))
        optimizer.zero_grad()
        loss(net(x), y).backward()
        optimizer.step()
    hook.close()
    return folder


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("runs") / "good")


def first(good: Path, bad: Path) -> tuple[int, str, bool]:
    """Return the step and the tensor that differ first, and whether the inputs of its module agree."""
    found = tensortrial.compare(good, bad).first
    assert found is not None
    return found.difference.step, found.difference.label, found.inputs_agree


def test_the_same_training_is_the_same(good: Path, tmp_path: Path) -> None:
    assert tensortrial.compare(good, train(tmp_path / "again")).same


def test_another_order_of_the_data_is_found_at_the_input(good: Path, tmp_path: Path) -> None:
    def shuffle(_: Any, batch: Batch) -> Batch:
        order = torch.randperm(len(batch[0]), generator=torch.Generator().manual_seed(3))
        return batch[0][order], batch[1][order]

    assert first(good, train(tmp_path / "bad", shuffle)) == (BAD, "Net_input_0", False)


def test_another_seed_of_a_dropout_is_found_at_the_dropout(good: Path, tmp_path: Path) -> None:
    def seed(_: Any, batch: Batch) -> Batch:
        torch.manual_seed(1)
        return batch

    assert first(good, train(tmp_path / "bad", seed)) == (BAD, "dropout_output_0", True)


def test_a_cast_to_bfloat16_is_found_at_its_layer(good: Path, tmp_path: Path) -> None:
    def cast(net: Any, batch: Batch) -> Batch:
        net.in_bfloat16 = True
        return batch

    bad = train(tmp_path / "bad", cast)
    assert first(good, bad) == (BAD, "fc2_output_0", True)
    found = tensortrial.compare(good, bad)
    assert str(found.differences[0]) == "float32 and bfloat16"


def test_a_weight_that_is_changed_is_found_before_what_it_changes(good: Path, tmp_path: Path) -> None:
    def corrupt(net: Any, batch: Batch) -> Batch:
        net.fc2.weight.data[3, 5] += 1e-6
        return batch

    assert first(good, train(tmp_path / "bad", corrupt)) == (BAD, "Net_fc2.weight", False)


@pytest.mark.slow
@pytest.mark.distributed
def test_an_all_reduce_that_is_left_out_is_found_in_the_gradients(tmp_path: Path) -> None:
    program = """
    import contextlib
    from torch.nn.parallel import DistributedDataParallel
    net = DistributedDataParallel(seeded())
    hook, loss = begin(net, include_collections=["weights", "biases", "gradients"], include_workers="all")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step, (x, y) in enumerate(batches(12)[rank::2]):
        optimizer.zero_grad()
        with net.no_sync() if step == 3 else contextlib.nullcontext():
            loss(net(x), y).backward()
        for name, parameter in net.module.named_parameters():
            hook.save_tensor(f"averaged/{name}", parameter.grad, "gradients")
        optimizer.step()
    """
    launch(program, tmp_path)
    workers = ("worker_0", "worker_1")
    found = tensortrial.compare(tmp_path / "run", workers=workers, regex=["averaged/", "^Net_"]).first
    assert found is not None
    assert found.difference.step == 3
    assert found.difference.label == "averaged/fc1.weight"
    weights = tensortrial.compare(tmp_path / "run", workers=workers, regex=r"^Net_.*(weight|bias)$")
    assert {each.step for each in weights.differences} == {4}
    assert weights.first is not None
    assert weights.first.difference.label == "Net_fc1.weight"
