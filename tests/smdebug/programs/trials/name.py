"""Name a trial, or let it be named after its folder."""

from smdebug.trials import create_trial

from torch_job import hooked, train

hook, model, loss = hooked()
train(model, loss, 1)
hook.close()
print(create_trial("run").name, create_trial("run", name="job").name)
