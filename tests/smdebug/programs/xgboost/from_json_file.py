"""Make the hook from a JSON file."""

import json

import smdebug.xgboost as smd

from boosting_job import train

with open("hook.json", "w") as file:
    collections = [{"CollectionName": "metrics"}, {"CollectionName": "feature_importance"}]
    json.dump(
        {"LocalPath": "run", "HookParameters": {"save_interval": "2"}, "CollectionConfigurations": collections}, file
    )
hook = smd.Hook.create_from_json_file("hook.json")
trial = train(hook, 5)
print(trial.steps(), sorted(trial.tensor_names(regex="weight")))
