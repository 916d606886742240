"""Save the metrics of each evaluation set."""

import smdebug.xgboost as smd

from boosting_job import data, train

hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
trial = train(hook, 3, evals=[(data, "train"), (data, "validation")])
print(sorted(trial.tensor_names()), trial.steps())
print(trial.tensor_names(collection="metrics") == trial.tensor_names())
