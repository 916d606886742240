"""Save several metrics of an evaluation set."""

import smdebug.xgboost as smd

from boosting_job import train

hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
trial = train(hook, 2, parameters={"eval_metric": ["rmse", "mae"]})
print(sorted(trial.tensor_names()))
