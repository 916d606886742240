"""Register a loss three times."""

from smdebug.trials import create_trial

from torch_job import hooked, train

hook, model, loss = hooked()
for _ in range(2):
    hook.register_loss(loss)
train(model, loss, 1)
hook.close()
print(sorted(create_trial("run").tensor_names(collection="losses")))
