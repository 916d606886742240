"""Save a metric whose name has an `@`."""

import numpy as np
import smdebug.xgboost as smd
import xgboost
from smdebug.trials import create_trial

x = np.random.default_rng(0).normal(size=(50, 3))
data = xgboost.DMatrix(x, x[:, 0] * 2 + x[:, 1] - x[:, 2])
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
data = xgboost.DMatrix(x, (x[:, 0] > 0).astype(int), group=[25, 25])
parameters = {"objective": "rank:ndcg", "eval_metric": "ndcg@5", "nthread": 1}
xgboost.train(parameters, data, 2, evals=[(data, "train")], callbacks=[hook], verbose_eval=False)
hook.close()
trial = create_trial("run")
print(sorted(trial.tensor_names()))
