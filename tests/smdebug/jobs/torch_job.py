"""The job of most programs for PyTorch: a linear layer and its loss, on the same batch at each step."""

import json

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial


def registered(hook, model=None):
    """Return the layer, or another model, and the loss, registered with a hook."""
    torch.manual_seed(0)
    model, loss = torch.nn.Linear(4, 2) if model is None else model, torch.nn.MSELoss()
    hook.register_module(model)
    hook.register_loss(loss)
    return model, loss


def hooked(save_interval=1, model=None, **options):
    """Return a hook of the run at `run`, with the model and the loss that are registered with it."""
    options.setdefault("save_config", smd.SaveConfig(save_interval=save_interval))
    hook = smd.Hook("run", **options)
    return hook, *registered(hook, model)


def train(model, loss, steps):
    """Run forward and backward for some steps."""
    for _ in range(steps):
        loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()


def trained(steps, save_interval=1, **options):
    """Return a trial of a job that has ended after some steps."""
    hook, model, loss = hooked(save_interval, **options)
    train(model, loss, steps)
    return ended(hook)


def ended(hook):
    """Close a hook, and return a trial of its run."""
    hook.close()
    return create_trial("run")


def trained_with(hook, steps):
    """Return a trial of a job with a hook that has no model yet."""
    train(*registered(hook), steps)
    return ended(hook)


def write_json(parameters, *collections, **more):
    """Write the configuration of a hook of the run at `run` into the file `hook.json`."""
    document = {"LocalPath": "run", "HookParameters": parameters, **more}
    with open("hook.json", "w") as file:
        json.dump({**document, "CollectionConfigurations": collections} if collections else document, file)
