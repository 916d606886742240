"""The job of most programs for PyTorch: a linear layer and its loss, on the same batch at each step."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial


def hooked(save_interval=1, **options):
    """Return a hook of the run at `run`, with the layer and the loss that are registered with it."""
    torch.manual_seed(0)
    model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
    options.setdefault("save_config", smd.SaveConfig(save_interval=save_interval))
    hook = smd.Hook("run", **options)
    hook.register_module(model)
    hook.register_loss(loss)
    return hook, model, loss


def train(model, loss, steps):
    """Run forward and backward for some steps."""
    for _ in range(steps):
        loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()


def trained(steps, save_interval=1, **options):
    """Return a trial of a job that has ended after some steps."""
    hook, model, loss = hooked(save_interval, **options)
    train(model, loss, steps)
    hook.close()
    return create_trial("run")
