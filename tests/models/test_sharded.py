"""Training with FSDP2 on two processes that Accelerate and Lightning run: each is a worker, and saves its shards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.programs import run_workers
from tensortrial import Trial, create_trial
from tensortrial.mode import modes

pytest.importorskip("accelerate")
pytest.importorskip("lightning")

BEGINNING = """
import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from tensortrial.hooks.pytorch import SaveConfig

torch.set_num_threads(1)
options = {"include_workers": "all", "include_collections": ["weights", "gradients"]}
options["save_config"] = SaveConfig(save_interval=1)
data = torch.rand(12, 4, generator=torch.Generator().manual_seed(0))

def layers():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))

def keep(step, **values):
    # What the run must hold: this process's shard, and the whole.
    for name, value in values.items():
        whole = value.full_tensor().detach().numpy()
        np.savez(f"{name}-{step}-{dist.get_rank()}.npz", shard=value.to_local().detach().numpy(), whole=whole)
"""

ACCELERATE = """
from accelerate import Accelerator
from tensortrial.hooks.accelerate import Tracker

tracker = Tracker("run", **options)
accelerator = Accelerator(cpu=True, log_with=tracker)
accelerator.init_trackers("sharded")
model = layers()
fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer, batches = accelerator.prepare(optimizer, torch.utils.data.DataLoader(data, batch_size=2))
tracker.hook.register_module(model)
for number, batch in enumerate(batches):
    with accelerator.accumulate(model), tracker.step():
        keep(number, weight=model[0].weight)
        accelerator.backward(model(batch).pow(2).mean())
        keep(number, gradient=model[0].weight.grad)
        optimizer.step()
        optimizer.zero_grad()
accelerator.end_training()
"""

LIGHTNING = """
import lightning
from lightning.pytorch.strategies import ModelParallelStrategy
from tensortrial.hooks.lightning import Callback

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = layers()

    def configure_model(self):
        fully_shard(self.layers, mesh=self.device_mesh["data_parallel"])

    def training_step(self, batch, batch_idx):
        keep(batch_idx, weight=self.layers[0].weight)
        return self.layers(batch).pow(2).mean()

    def on_before_optimizer_step(self, optimizer):
        keep(self.global_step, gradient=self.layers[0].weight.grad)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

callback = Callback("run", **options)
trainer = lightning.Trainer(
    callbacks=[callback], strategy=ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1),
    accelerator="cpu", devices=2, max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Net(), torch.utils.data.DataLoader(data, batch_size=2))
callback.close()
"""


def launch(program: str, folder: Path) -> Trial:
    """Run a program in two processes."""
    modules = ("torch.distributed.fsdp", "tensortrial.hooks.accelerate", "tensortrial.hooks.lightning")
    assert "nothing was saved" not in run_workers(BEGINNING + program, folder, *modules)
    return create_trial(folder / "run")


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize(
    ("program", "prefix"),
    [
        pytest.param(ACCELERATE, "Sequential_0", id="Accelerate"),
        pytest.param(LIGHTNING, "Net_layers.0", id="Lightning"),
    ],
)
def test_shards_of_all_workers_make_the_whole_parameter(program: str, prefix: str, tmp_path: Path) -> None:
    trial = launch(program, tmp_path)
    assert trial.workers() == ["worker_0", "worker_1"]
    assert trial.loaded_all_steps
    assert trial.steps(modes.TRAIN) == [0, 1, 2]
    for kind, name in (("weight", f"{prefix}.weight"), ("gradient", f"gradient/{prefix}.weight")):
        tensor = trial.tensor(name)
        for step in range(3):
            kept = [np.load(tmp_path / f"{kind}-{step}-{rank}.npz") for rank in range(2)]
            saved = [tensor.value(step, modes.TRAIN, worker=worker) for worker in trial.workers()]
            assert [each.shape for each in saved] == [(2, 4), (1, 4)]
            for value, of_rank in zip(saved, kept, strict=True):
                np.testing.assert_array_equal(value, of_rank["shard"])
            np.testing.assert_array_equal(np.concatenate(saved), kept[0]["whole"])


@pytest.mark.slow
@pytest.mark.distributed
def test_whole_parameters_are_saved_by_the_first_worker_alone(tmp_path: Path) -> None:
    trial = launch(ACCELERATE.replace("**options", "full_tensors=True, **options"), tmp_path)
    assert trial.steps(modes.TRAIN) == [0, 1, 2]
    for kind, name in (("weight", "Sequential_0.weight"), ("gradient", "gradient/Sequential_0.weight")):
        tensor = trial.tensor(name)
        assert tensor.workers(0, modes.TRAIN) == ["worker_0"]
        for step in range(3):
            kept = np.load(tmp_path / f"{kind}-{step}-1.npz")
            np.testing.assert_array_equal(tensor.value(step, modes.TRAIN), kept["whole"])
