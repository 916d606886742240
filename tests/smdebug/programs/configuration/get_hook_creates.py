"""Create the hook of a JSON file by get_hook."""

import json
import os

import smdebug.pytorch as smd

with open("hook.json", "w") as file:
    json.dump({"LocalPath": "run"}, file)
os.environ["SMDEBUG_CONFIG_FILE_PATH"] = "hook.json"
print(smd.get_hook())
hook = smd.get_hook(create_if_not_exists=True)
print(hook is smd.get_hook(), hook.out_dir)
