"""Restrict a trial to a range of steps."""

from smdebug.trials import create_trial

from torch_job import hooked, train

hook, model, loss = hooked()
train(model, loss, 10)
hook.close()
for limits in ((3, 6), (None, 3), (7, None), None):
    print(limits, create_trial("run", range_steps=limits).steps())
