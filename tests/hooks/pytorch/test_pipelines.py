"""The stages of a pipeline: one step a batch, and the gradients that the optimizer gets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from support.programs import run  # noqa: E402
from tensortrial import create_trial  # noqa: E402

PROGRAM = """
    from pathlib import Path
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
    from torch import nn
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
    import tensortrial.hooks.pytorch as tt

    def work(rank, rendezvous):
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=2)
        torch.manual_seed(rank)
        net = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        loss = nn.MSELoss()
        hook = tt.Hook("run", save_config=tt.SaveConfig(save_interval=1), save_all=True, include_workers="all")
        hook.register_module(net)
        hook.register_loss(loss)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        schedule = SCHEDULE(PipelineStage(net, rank, 2, torch.device("cpu")), 4, loss_fn=loss)
        for step in range(2):
            x, y = torch.full((8, 8), step + 1.0), torch.zeros(8, 8)
            optimizer.zero_grad()
            with hook.step():
                schedule.step(x) if rank == 0 else schedule.step(target=y)
                optimizer.step()
            hook.save_tensor("expected", net[0].weight.grad)
        hook.close()
        dist.barrier()
        dist.destroy_process_group()

    if __name__ == "__main__":
        # A file, because another test may take a port that was found to be free.
        mp.start_processes(work, ((Path.cwd() / "rendezvous").as_uri(),), 2, start_method="fork")
"""


@pytest.mark.distributed
@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["ScheduleGPipe", "Schedule1F1B"])
def test_a_held_step_saves_each_microbatch_and_the_scaled_gradients(tmp_path: Path, schedule: str) -> None:
    done = run(PROGRAM.replace("SCHEDULE", schedule), tmp_path, TENSORTRIAL_STRICT="1")
    assert done.returncode == 0, done.stderr
    trial = create_trial(tmp_path / "run")
    outputs = {name for name in trial.tensor_names() if "_output_" in name}
    modules = ("0", "1", "Sequential", "MSELoss")
    assert outputs == {f"{name}_output_{number}" for name in modules for number in range(4)}
    for worker in trial.workers():
        gradient = trial.tensor("gradient/Sequential_0.weight")
        assert gradient.steps()[:2] == [0, 1]
        # What is saved outside of the held step is the next one's.
        for step in range(2):
            expected = trial.tensor("expected").value(step + 1, worker=worker)
            assert np.array_equal(gradient.value(step, worker=worker), expected)
        weights = trial.tensor("Sequential_0.weight")
        assert not np.array_equal(weights.value(0, worker=worker), weights.value(1, worker=worker))
    losses = [float(trial.tensor(f"MSELoss_output_{i}").value(0, worker="worker_1")) for i in range(4)]
    assert np.ptp(losses) < 1e-6
    assert 0 < losses[0] < 1
