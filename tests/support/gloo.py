"""Runs a program in several processes of one job, with gloo."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from support.programs import start

BEGINNING = """
    import os
    import torch
    import torch.distributed as dist
    from torch import nn
    from support.training import BATCH, batches, digits, seeded, train
    import tensortrial.hooks.pytorch as tt

    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    # A file, because another test may take a port that was found to be free.
    size = int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=os.environ["INIT_METHOD"], rank=rank, world_size=size)

    def begin(net, **options):
        hook = tt.Hook("../run", save_config=tt.SaveConfig(save_interval=1), **options)
        loss = nn.CrossEntropyLoss()
        hook.register_module(net)
        hook.register_loss(loss)
        return hook, loss

    def go_on(net, loss, steps):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in batches(2 * steps)[rank::2]:
            optimizer.zero_grad()
            loss(net(x), y).backward()
            optimizer.step()
"""
ENDING = """
    dist.barrier()
    hook.close()
    dist.destroy_process_group()
"""


def launch(program: str, folder: Path, size: int = 2) -> None:
    """Run a program once a rank, and wait for all of them."""
    common = {"INIT_METHOD": (folder / "rendezvous").as_uri(), "WORLD_SIZE": str(size)}
    with ExitStack() as stack:
        processes = []
        for rank in range(size):
            directory = folder / f"rank{rank}"
            directory.mkdir()
            process = start(BEGINNING + program + ENDING, directory, RANK=str(rank), **common)
            stack.enter_context(process)
            stack.callback(process.kill)
            processes.append(process)
        for process in processes:
            _, err = process.communicate(timeout=300)
            assert process.returncode == 0, err
