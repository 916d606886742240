"""Spell booleans of the JSON file in several ways."""

import json

import smdebug.pytorch as smd

for number, value in enumerate(("true", "True", True, "false", "False", False)):
    with open("hook.json", "w") as file:
        json.dump({"LocalPath": f"run{number}", "HookParameters": {"save_all": value}}, file)
    print(repr(value), smd.Hook.create_from_json_file("hook.json").save_all)
