"""Disable the losses by setting end_step on the collection's save_config, as the documents say."""

from smdebug.trials import create_trial

from torch_job import hooked, train

hook, model, loss = hooked(include_collections=["weights"])
hook.get_collection("losses").save_config.end_step = 0
train(model, loss, 3)
hook.close()
trial = create_trial("run")
print(sorted(trial.tensor_names()))
