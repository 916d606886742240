"""Save a scalar of the script's own in each round."""

import smdebug.xgboost as smd

from boosting_job import train

hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
hook.save_scalar("seed", 3.0)
trial = train(hook, 2)
print(trial.tensor("scalar/seed").steps())
