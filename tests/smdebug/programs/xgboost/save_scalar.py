"""Save a scalar of the script's own in each round."""

import numpy as np
import smdebug.xgboost as smd
import xgboost
from smdebug.trials import create_trial

x = np.random.default_rng(0).normal(size=(50, 3))
data = xgboost.DMatrix(x, x[:, 0] * 2 + x[:, 1] - x[:, 2])
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
hook.save_scalar("seed", 3.0)
parameters = {"eta": 0.5, "max_depth": 2, "nthread": 1}
xgboost.train(parameters, data, 2, evals=[(data, "train")], callbacks=[hook], verbose_eval=False)
hook.close()
trial = create_trial("run")
print(trial.tensor("scalar/seed").steps())
