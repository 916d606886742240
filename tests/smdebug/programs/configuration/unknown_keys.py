"""Ignore keys that are unknown."""

import smdebug.pytorch as smd

from torch_job import trained_with, write_json

write_json({"save_interval": "1", "save_intervall": "7"}, S3Path="x")
print(trained_with(smd.Hook.create_from_json_file("hook.json"), 2).steps())
