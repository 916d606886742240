"""Register a loss three times."""

from torch_job import ended, hooked, train

hook, model, loss = hooked()
for _ in range(2):
    hook.register_loss(loss)
train(model, loss, 1)
print(sorted(ended(hook).tensor_names(collection="losses")))
