"""Disable the losses by setting end_step on the collection's save_config, as the documents say."""

from torch_job import ended, hooked, train

hook, model, loss = hooked(include_collections=["weights"])
hook.get_collection("losses").save_config.end_step = 0
train(model, loss, 3)
trial = ended(hook)
print(sorted(trial.tensor_names()))
