"""Write no file in a dry run."""

import os

from torch_job import hooked, train

hook, model, loss = hooked(dry_run=True)
train(model, loss, 2)
hook.close()
print(sum(len(files) for _, _, files in os.walk("run")))
