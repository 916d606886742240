"""Name a JSON file that does not exist."""

import smdebug.pytorch as smd

try:
    smd.Hook.create_from_json_file("nowhere.json")
    print("accepted")
except Exception:
    print("refused")
