"""The same training by another library of kernels, whose last digits differ as those of another device do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tensortrial  # noqa: E402
import tensortrial.hooks.pytorch as tt  # noqa: E402
from support.training import batches  # noqa: E402

STEPS = 6
CLOSE = {"rtol": 1e-4, "atol": 1e-5}

pytestmark = [
    pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="there is one library of kernels only"),
    # PyTorch 2.13 warns of a GPU whenever oneDNN is turned off or on.
    pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN"),
]


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(16 * 16, 10)

    def forward(self, x: Any) -> Any:
        x = self.conv2(self.conv1(x.reshape(-1, 1, 8, 8)).relu()).relu()
        return self.head(self.pool(x).flatten(1))


def train(folder: Path, onednn: bool = True, bfloat16: bool = False) -> Path:
    torch.manual_seed(0)
    net, loss = Convolutions(), nn.CrossEntropyLoss()
    hook = tt.Hook(str(folder), save_all=True, save_config=tt.SaveConfig(save_interval=1))
    hook.register_module(net)
    hook.register_loss(loss)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for x, y in batches(STEPS):
        optimizer.zero_grad()
        with (
            torch.backends.mkldnn.flags(enabled=onednn),
            torch.autocast("cpu", torch.bfloat16, enabled=bfloat16),
        ):
            loss(net(x), y).backward()
        optimizer.step()
    hook.close()
    return folder


@pytest.fixture(scope="module")
def with_onednn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("runs") / "onednn")


def test_other_kernels_differ_first_where_the_first_of_them_computes(with_onednn: Path, tmp_path: Path) -> None:
    other = train(tmp_path / "other", onednn=False)
    first = tensortrial.compare(with_onednn, other).first
    assert first is not None
    assert (first.difference.step, first.difference.name) == (0, "conv1_output_0")
    assert first.inputs_agree
    assert first.last_agreeing == "conv1_input_0"
    assert 0 < first.difference.max_abs < CLOSE["atol"]
    assert tensortrial.compare(with_onednn, other, **CLOSE).same
    # A tolerance of ULPs does not serve: next to 0 they are many.
    assert not tensortrial.compare(with_onednn, other, ulps=4).same


def test_autocast_differs_beyond_what_other_kernels_do(with_onednn: Path, tmp_path: Path) -> None:
    lower = train(tmp_path / "bfloat16", bfloat16=True)
    first = tensortrial.compare(with_onednn, lower, **CLOSE).first
    assert first is not None
    assert (first.difference.step, first.difference.name) == (0, "conv1_output_0")
    assert first.difference.max_abs > 100 * CLOSE["atol"]
    assert first.inputs_agree
