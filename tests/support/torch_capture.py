"""What tests may change inside the PyTorch hook, where a real input would need a GPU, gigabytes or another torch.

Each function changes one thing for the length of a test. When the structure of the hook changes, this file follows, and
the tests stay as they are.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tensortrial.hooks.pytorch import attention, device, statistics
from tensortrial.hooks.pytorch import compile as compiled
from tensortrial.hooks.pytorch.capture import Capture


def capture_as_on_a_device(patch: pytest.MonkeyPatch) -> list[int]:
    """Treat every tensor as one on a device.

    Returns:
        The number of elements of each copy to the host, as the copies are made.
    """
    sent: list[int] = []
    to_host = device._to_host

    def count(tensor: torch.Tensor, stream: Any) -> Any:
        sent.append(tensor.numel())
        return to_host(tensor, stream)

    patch.setattr(Capture, "_record", Capture._record_on_device)
    patch.setattr(device, "_to_host", count)
    return sent


def limit_device_batches(patch: pytest.MonkeyPatch, nbytes: int) -> None:
    """Compute the statistics of tensors on a device once their copies have this many bytes."""
    patch.setattr(device, "_BATCH_BYTES", nbytes)


def limit_parts(patch: pytest.MonkeyPatch, elements: int) -> None:
    """Compute statistics of no more elements at once."""
    patch.setattr(statistics, "_CHUNK", elements)


def limit_logits(patch: pytest.MonkeyPatch, number: int) -> None:
    """Compute no more logits of attention at once."""
    patch.setattr(attention, "_MOST_LOGITS", number)


def break_attention(patch: pytest.MonkeyPatch) -> None:
    """Raise an error where the statistics of attention are computed."""
    patch.setattr(attention, "_measured", lambda *args: 1 / 0)


def compile_as_an_older_torch(patch: pytest.MonkeyPatch) -> None:
    """Capture in compiled code as with a torch that has no operators with effects."""
    patch.setattr(compiled, "_operator", None)


def forget_compiled_code() -> None:
    """Let the hook log the warnings of compiled code again, and the compiler begin afresh."""
    torch.compiler.reset()
    compiled._warned.clear()
    # The compiler compiles again a few times in a process, and tests before this one may have used them up.
    compiled.switch.epoch = "0"
