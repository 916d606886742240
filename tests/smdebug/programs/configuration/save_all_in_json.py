"""Save all tensors by the JSON file."""

import smdebug.pytorch as smd

from torch_job import trained_with, write_json

write_json({"save_all": "true", "save_interval": "1"})
print(sorted(trained_with(smd.Hook.create_from_json_file("hook.json"), 1).tensor_names()))
