"""The memory that a large tensor takes: one copy of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import tensortrial.hooks.pytorch as tt  # noqa: E402
from support.programs import start  # noqa: E402
from tensortrial import create_trial  # noqa: E402

PROGRAM = """
import torch
import tensortrial.hooks.pytorch as tt
from support.memory import peak_bytes

torch.set_num_threads(1)
hook = tt.Hook("run")
hook.save_tensor("small", torch.ones(2 << 20))
hook.flush()
large = torch.ones(64 << 20)
before = peak_bytes()
hook.save_tensor("large", large)
hook.close()
print((peak_bytes() - before) / large.nbytes)
"""


@pytest.mark.slow
def test_saving_a_large_tensor_takes_the_memory_of_one_copy(tmp_path: Path) -> None:
    with start(PROGRAM, tmp_path, TENSORTRIAL_STRICT="1") as process:
        out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert float(out) < 1.3
    assert create_trial(tmp_path / "run").tensor("large").shape(0) == (64 << 20,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_a_tensor_that_changes_after_it_was_saved_keeps_its_value(tmp_path: Path, dtype: torch.dtype) -> None:
    hook = tt.Hook(tmp_path / "run")
    for elements in (3, 5000, 1 << 20):
        tensor = torch.ones(elements, dtype=dtype)
        hook.save_tensor(f"t{elements}", tensor)
        hook.save_tensor(f"view{elements}", tensor[1:])
        tensor.zero_()
    hook.close()
    trial = create_trial(tmp_path / "run")
    for name in trial.tensor_names():
        assert (np.asarray(trial.tensor(name).value(0), np.float64) == 1).all(), name
