"""Make a hook from a JSON file."""

import smdebug.pytorch as smd

from torch_job import trained_with, write_json

parameters = {"save_interval": "2", "include_workers": "one"}
write_json(parameters, {"CollectionName": "weights"}, {"CollectionName": "losses"})
hook = smd.Hook.create_from_json_file("hook.json")
trial = trained_with(hook, 5)
print(hook.out_dir, trial.steps(), sorted(trial.tensor_names()))
