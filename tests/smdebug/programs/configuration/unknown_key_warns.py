"""Log a warning of a key that is unknown."""

import json
import logging

import smdebug.pytorch as smd


class Counter(logging.Handler):
    count = 0

    def emit(self, record):
        self.count += "save_intervall" in record.getMessage()


counter = Counter()
logging.getLogger().addHandler(counter)
with open("hook.json", "w") as file:
    json.dump({"LocalPath": "run", "HookParameters": {"save_intervall": "7"}}, file)
smd.Hook.create_from_json_file("hook.json")
print(counter.count)
