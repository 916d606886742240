"""Save a metric that the script computes."""

import smdebug.xgboost as smd

from boosting_job import train

hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
trial = train(hook, 2, custom_metric=lambda predictions, _: ("largest", float(predictions.max())))
print(sorted(trial.tensor_names()))
