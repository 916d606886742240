"""Train a network in which one layer's learning rate explodes, let rules find it, and open the page at the place.

python examples/exploding.py              all of it, until Ctrl-C
python examples/exploding.py train [OUT]  the training alone
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import subprocess
import sys
import webbrowser

import tensortrial
from tensortrial.rules import ExplodingTensor, Finding, LossNotDecreasing, watch

STEPS = 300
FAULT = 200  # the step from which on the third layer's learning rate grows


def train(out_dir: str, steps: int = STEPS, fault: int = FAULT) -> None:
    """Train an MLP on scikit-learn's digits."""
    import torch
    from sklearn.datasets import load_digits
    from torch import nn

    import tensortrial.hooks.pytorch as tt

    torch.manual_seed(0)
    torch.set_num_threads(1)
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm, self.linear, self.relu = nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU()

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            return batch + self.relu(self.linear(self.norm(batch)))

    class MLP(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(64, 48)
            self.blocks = nn.Sequential(*(Block(48) for _ in range(6)))
            self.head = nn.Linear(48, 10)

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            return self.head(self.blocks(self.embed(batch)))

    model, criterion = MLP(), nn.CrossEntropyLoss()
    broken = model.blocks[2].linear
    rest = [p for p in model.parameters() if all(p is not q for q in broken.parameters())]
    optimizer = torch.optim.SGD([{"params": rest}, {"params": list(broken.parameters())}], lr=0.1)

    hook = tt.Hook(
        out_dir,
        save_config=tt.SaveConfig(save_interval=2),
        include_collections=["weights", "gradients"],
        include_regex=["relu_output"],
        metadata={"lr": 0.1, "fault": "the learning rate of one layer grows"},
    )
    for name in ("weights", "gradients", "all"):
        hook.get_collection(name).reduction_config = tt.ReductionConfig(
            reductions=["mean", "std", "min", "max", "nan_count", "inf_count", "zero_count"],
            norms=["l2"],
            save_raw_tensor=True,
        )
        hook.get_collection(name).save_histogram = True
    hook.get_collection("losses").save_config = tt.SaveConfig(save_interval=1)
    hook.register_module(model)
    hook.register_loss(criterion)
    hook.set_mode(tensortrial.modes.TRAIN)

    for step in range(steps):
        if step >= fault:
            optimizer.param_groups[1]["lr"] *= 1.35
        batch = torch.randint(len(x), (64,))
        optimizer.zero_grad()
        loss = criterion(model(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        hook.save_scalar("lr of the third layer", optimizer.param_groups[1]["lr"])
    hook.close()


def find(out_dir: str) -> list[Finding]:
    """Let rules read the run, and return what they found first."""
    trial = tensortrial.create_trial(out_dir)
    return list(watch(trial, [ExplodingTensor(trial), LossNotDecreasing(trial)]))


def open_page(out_dir: str, step: int) -> None:
    """Serve the page of the run until Ctrl-C, and open it at the steps around one."""
    command = [sys.executable, "-m", "tensortrial", "page", out_dir, "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        for line in server.stdout:
            print(line, end="", flush=True)
            if found := re.search(r"http://\S+", line):
                webbrowser.open(f"{found.group()}#from={max(0, step - 40)}&to={step + 20}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", choices=["train"], help="train only, without rules and page")
    parser.add_argument("out_dir", nargs="?", default="runs/exploding", help="the folder that the run is saved to")
    options = parser.parse_args(arguments)
    if options.command:
        train(options.out_dir)
        return 0
    out_dir = options.out_dir
    shutil.rmtree(out_dir, ignore_errors=True)
    train(out_dir)
    findings = find(out_dir)
    first = next(finding for finding in findings if finding.rule == "ExplodingTensor")
    print(f"Rules found {len(findings)} faults. The first NaN is at step {first.step}: {first.sentence}")
    print("The page shows which layer went wrong before. Ctrl-C ends it.")
    with contextlib.suppress(KeyboardInterrupt):
        open_page(out_dir, first.step)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
