"""Many runs in one process: a closed run leaves no memory, threads or files behind."""

from __future__ import annotations

import json
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from support.programs import start, start_cold  # noqa: E402

MEASURE = """
import gc, json, os, shutil, sys, threading
from support.memory import resident_bytes

def measured():
    gc.collect()
    files = len(os.listdir("/proc/self/fd"))
    return {"threads": threading.active_count(), "files": files, "bytes": resident_bytes()}

found = []
for number in range(RUNS + 1):
    if number in (RUNS // 2, RUNS):
        found.append(measured())
    job(f"run{number}")
    shutil.rmtree(f"run{number}")
print(json.dumps(found))
"""
PYTORCH = """
import torch
from torch import nn
import tensortrial.hooks.pytorch as tt

torch.set_num_threads(1)

def job(out):
    hook = tt.Hook(out, save_config=tt.SaveConfig(save_interval=1), save_all=True)
    net, loss = nn.Sequential(nn.Linear(100, 1000), nn.ReLU(), nn.Linear(1000, 10)), nn.CrossEntropyLoss()
    hook.register_module(net)
    hook.register_loss(loss)
    for _ in range(2):
        loss(net(torch.rand(8, 100)), torch.zeros(8, dtype=torch.long)).backward()
    tt.get_hook().save_scalar("x", 1)
    hook.close()
"""
XGBOOST = """
import numpy as np, xgboost as xgb
import tensortrial.hooks.xgboost as tt

x = np.random.default_rng(0).random((200, 20))

def job(out):
    data = xgb.DMatrix(x, label=(x[:, 0] > 0.5).astype(int))
    hook = tt.Hook(out, save_config=tt.SaveConfig(save_interval=1), save_all=True, train_data=data)
    xgb.train({"objective": "binary:logistic", "nthread": 1}, data, 2, [(data, "train")], callbacks=[hook], verbose_eval=False)
    hook.close()
"""  # noqa: E501
JOBS: dict[str, Any] = {"pytorch": PYTORCH}
if find_spec("xgboost"):
    JOBS["xgboost"] = XGBOOST


@pytest.mark.parametrize(
    ("framework", "runs"),
    [("pytorch", 6), *(pytest.param(name, 100, marks=pytest.mark.slow) for name in JOBS)],
)
def test_a_closed_run_leaves_no_memory_or_threads_behind(tmp_path: Path, framework: str, runs: int) -> None:
    program = f"RUNS = {runs}\n{JOBS[framework]}{MEASURE}"
    # Only many runs are measured to the byte.
    start_job = start if runs < 100 else partial(start_cold, MALLOC_ARENA_MAX="2")
    with start_job(program, tmp_path, TENSORTRIAL_STRICT="1") as process:
        try:
            out, err = process.communicate(timeout=400)
        finally:
            process.kill()
    assert process.returncode == 0, err
    half, end = json.loads(out)
    assert end["threads"] <= half["threads"]
    assert end["files"] <= half["files"]
    # A run of PyTorch here holds a model and gradients of 1 MB, and copies of them on their way to the disk. In the
    # first runs, memory still grows for other reasons.
    assert runs < 100 or end["bytes"] - half["bytes"] < runs / 2 * 400_000
