"""Close a hook twice."""

from torch_job import ended, hooked, train

hook, model, loss = hooked()
train(model, loss, 2)
hook.close()
print(ended(hook).steps())
