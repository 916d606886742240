"""Find the JSON file by an environment variable."""

import os

import smdebug.pytorch as smd

from torch_job import trained_with, write_json

write_json({"save_steps": "1,3", "save_interval": "50"})
os.environ["SMDEBUG_CONFIG_FILE_PATH"] = "hook.json"
print(trained_with(smd.Hook.create_from_json_file(), 5).steps())
