"""Refuse a folder that holds a run."""

import smdebug.pytorch as smd

from torch_job import hooked, train

hook, model, loss = hooked()
train(model, loss, 1)
hook.close()
try:
    smd.Hook("run")
    print("accepted")
except Exception:
    print("refused")
