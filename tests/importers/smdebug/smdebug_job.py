"""A job that runs in an environment with smdebug, and says what smdebug's own reader finds in the run it wrote.

python smdebug_job.py RUN ANSWERS.npz
"""

from __future__ import annotations

import json
import sys

import numpy as np
import smdebug.pytorch as smd
import torch
from smdebug.exceptions import TensorUnavailableForStep
from torch import nn

REDUCTIONS = ["min", "max", "mean", "std", "variance", "sum", "prod"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


def make_hook(run):
    every = {smd.modes.TRAIN: smd.SaveConfigMode(save_interval=2), smd.modes.EVAL: smd.SaveConfigMode(save_interval=1)}
    hook = smd.Hook(
        out_dir=run,
        save_config=smd.SaveConfig(mode_save_configs=every),
        include_collections=["weights", "biases", "gradients", "losses", "custom", "shaped"],
    )
    norms = ["l1", "l2"]
    reduced = smd.ReductionConfig(reductions=REDUCTIONS, abs_reductions=REDUCTIONS, norms=norms, abs_norms=norms)
    hook.get_collection("weights").reduction_config = reduced
    both = smd.ReductionConfig(reductions=["mean"], abs_norms=["l2"], save_raw_tensor=True)
    hook.get_collection("biases").reduction_config = both
    hook.get_collection("shaped").include("fc2_output")
    hook.get_collection("shaped").reduction_config = smd.ReductionConfig(save_shape=True)
    hook.get_collection("custom").include("fc1_output|custom")
    return hook


def train(run):
    torch.manual_seed(0)
    net, loss_module = Net(), nn.CrossEntropyLoss()
    hook = make_hook(run)
    hook.register_module(net)
    hook.register_loss(loss_module)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x, y = torch.randn(12, 8), torch.randint(0, 4, (12,))
    for epoch in range(2):
        net.train()
        hook.set_mode(smd.modes.TRAIN)
        for step in range(5):
            optimizer.zero_grad()
            output = net(x)
            loss_module(output, y).backward()
            optimizer.step()
            hook.save_scalar("lr", 0.1 * step)
            save_tensors(hook, output.detach())
        net.eval()
        hook.set_mode(smd.modes.EVAL)
        with torch.no_grad():
            for _ in range(2):
                loss_module(net(x), y)
        hook.save_scalar("accuracy", 0.5 + epoch)
    hook.close()


def save_tensors(hook, output):
    for kind in ("float16", "float64", "int8", "uint8", "int16", "int32", "int64", "bool", "complex64"):
        hook.save_tensor(f"custom/{kind}:0", output.to(getattr(torch, kind)), "custom")


def answers(run):
    trial = smd.create_trial(run)
    arrays, facts = {}, {"steps": {}, "collections": {}, "unreadable": []}
    for mode in (smd.modes.TRAIN, smd.modes.EVAL):
        facts["steps"][mode.name] = trial.steps(mode=mode)
        for name in trial.tensor_names(mode=mode):
            tensor = trial.tensor(name)
            for step in tensor.steps(mode=mode):
                keep(arrays, facts, tensor, mode, step)
    for name in trial.collections():
        facts["collections"][name] = sorted(trial.tensor_names(collection=name))
    facts["workers"] = trial.workers()
    facts["names"] = sorted(trial.tensor_names())
    return arrays, facts


def keep(arrays, facts, tensor, mode, step):
    key = f"{tensor.name}|{mode.name}|{step}"
    try:
        arrays[f"value|{key}"] = tensor.value(step, mode=mode)
    except TensorUnavailableForStep:
        pass
    except KeyError:  # it writes dtypes that it cannot read
        facts["unreadable"].append(key)
    for reduction in [*REDUCTIONS, "l1", "l2"]:
        for absolute in (False, True):
            found = (tensor.reduction_values(step, mode=mode) or {}).get((reduction, absolute))
            if found is not None:
                arrays[f"{'abs_' if absolute else ''}{reduction}|{key}"] = np.asarray(found)


if __name__ == "__main__":
    train(sys.argv[1])
    arrays, facts = answers(sys.argv[1])
    np.savez(sys.argv[2], facts=np.array(json.dumps(facts)), **arrays)
