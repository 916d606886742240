"""Give collections of the JSON file parameters of their own."""

import smdebug.pytorch as smd

from torch_job import trained_with, write_json

write_json(
    {"save_interval": "2"},
    {"CollectionName": "weights", "CollectionParameters": {"save_interval": "3", "reductions": "mean,abs_max,l2_norm"}},
    {"CollectionName": "mine", "CollectionParameters": {"include_regex": "Linear_output,Linear_input"}},
)
trial = trained_with(smd.Hook.create_from_json_file("hook.json"), 7)
print(trial.tensor("Linear_weight").steps(), sorted(trial.tensor("Linear_weight").reduction_values(0)))
print(sorted(trial.tensor_names(collection="mine")), trial.tensor("Linear_output_0").steps())
