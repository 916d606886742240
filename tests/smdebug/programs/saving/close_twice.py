"""Close a hook twice."""

from smdebug.trials import create_trial

from torch_job import hooked, train

hook, model, loss = hooked()
train(model, loss, 2)
hook.close()
hook.close()
print(create_trial("run").steps())
