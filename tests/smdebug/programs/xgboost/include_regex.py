"""Save the tensors whose names match a regex."""

import numpy as np
import smdebug.xgboost as smd
import xgboost
from smdebug.trials import create_trial

x = np.random.default_rng(0).normal(size=(50, 3))
data = xgboost.DMatrix(x, x[:, 0] * 2 + x[:, 1] - x[:, 2])
hook = smd.Hook("run", include_regex=["^feature_importance/weight/f0$"], save_config=smd.SaveConfig(save_interval=1))
parameters = {"eta": 0.5, "max_depth": 2, "nthread": 1}
xgboost.train(parameters, data, 1, evals=[(data, "train")], callbacks=[hook], verbose_eval=False)
hook.close()
trial = create_trial("run")
print(sorted(trial.tensor_names()))
