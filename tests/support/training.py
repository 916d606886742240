"""Real training for the tests of hooks: small networks on scikit-learn's digits."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

BATCH = 32


class Net(nn.Module):
    """Two layers with an in-place activation between them."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(64, 16)
        self.relu = nn.ReLU(inplace=True)
        self.fc2 = nn.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        return self.fc2(self.relu(self.fc1(x)))


@cache
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """All images, in [0, 1], and their labels."""
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    x, y = digits()
    return [(x[i * BATCH : (i + 1) * BATCH], y[i * BATCH : (i + 1) * BATCH]) for i in range(count)]


def seeded(make: Any = Net) -> Any:
    torch.manual_seed(0)
    return make()


def train(model: nn.Module, steps: int = 3, loss: Any = None, rate: float = 0.1) -> list[float]:
    """Train a classifier of digits, and give its losses."""
    loss = loss or nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=rate)
    losses = []
    for x, y in batches(steps):
        optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def optimized(make_hook: Any, make: Any, **options: Any) -> tuple[Any, Any, Any]:
    """Make a hook that knows a seeded network and its optimizer. Return all three."""
    net, hook = seeded(), make_hook(**options)
    hook.register_module(net)
    optimizer = make(net)
    hook.register_optimizer(optimizer)
    return hook, net, optimizer


def loss_of(model: nn.Module, batch: int = 0) -> torch.Tensor:
    """Return the loss of a classifier of digits on a batch."""
    x, y = batches(batch + 1)[batch]
    return nn.functional.cross_entropy(model(x), y)


def evaluate(model: nn.Module, steps: int = 1) -> None:
    with torch.no_grad():
        for x, _ in batches(steps):
            model(x)


def array(tensor: torch.Tensor) -> Any:
    return tensor.detach().numpy().copy()


def same(found: Any, expected: Any) -> bool:
    """Whether two arrays are equal to the bit."""
    found, expected = np.asarray(found), np.asarray(expected)
    return found.dtype == expected.dtype and found.shape == expected.shape and found.tobytes() == expected.tobytes()
