"""Create a trial by the framework's module."""

import smdebug.pytorch as smd

from torch_job import hooked, train

hook, model, loss = hooked(save_interval=2)
train(model, loss, 3)
hook.close()
print(smd.create_trial("run").steps())
