"""Give the hook a regex by the JSON file."""

import smdebug.pytorch as smd

from torch_job import trained_with, write_json

write_json({"include_regex": "Linear_out,Linear_inp", "save_interval": "1"})
print(sorted(trained_with(smd.Hook.create_from_json_file("hook.json"), 1).tensor_names(collection="default")))
