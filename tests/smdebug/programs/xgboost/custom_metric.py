"""Save a metric that the script computes."""

import numpy as np
import smdebug.xgboost as smd
import xgboost
from smdebug.trials import create_trial

x = np.random.default_rng(0).normal(size=(50, 3))
data = xgboost.DMatrix(x, x[:, 0] * 2 + x[:, 1] - x[:, 2])
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
parameters = {"eta": 0.5, "max_depth": 2, "nthread": 1}
xgboost.train(
    parameters,
    data,
    2,
    evals=[(data, "train")],
    custom_metric=lambda predictions, _: ("largest", float(predictions.max())),
    callbacks=[hook],
    verbose_eval=False,
)
hook.close()
trial = create_trial("run")
print(sorted(trial.tensor_names()))
