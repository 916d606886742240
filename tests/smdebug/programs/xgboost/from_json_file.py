"""Make the hook from a JSON file."""

import json

import numpy as np
import smdebug.xgboost as smd
import xgboost
from smdebug.trials import create_trial

x = np.random.default_rng(0).normal(size=(50, 3))
data = xgboost.DMatrix(x, x[:, 0] * 2 + x[:, 1] - x[:, 2])
with open("hook.json", "w") as file:
    collections = [{"CollectionName": "metrics"}, {"CollectionName": "feature_importance"}]
    json.dump(
        {"LocalPath": "run", "HookParameters": {"save_interval": "2"}, "CollectionConfigurations": collections}, file
    )
hook = smd.Hook.create_from_json_file("hook.json")
parameters = {"eta": 0.5, "max_depth": 2, "nthread": 1}
xgboost.train(parameters, data, 5, evals=[(data, "train")], callbacks=[hook], verbose_eval=False)
hook.close()
trial = create_trial("run")
print(trial.steps(), sorted(trial.tensor_names(regex="weight")))
