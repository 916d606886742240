"""Disable the losses by the JSON file."""

import smdebug.pytorch as smd

from torch_job import trained_with, write_json

losses = {"CollectionName": "losses", "CollectionParameters": {"end_step": "0"}}
write_json({"save_interval": "1"}, losses, {"CollectionName": "weights"})
print(sorted(trained_with(smd.Hook.create_from_json_file("hook.json"), 2).tensor_names()))
