"""Save the predictions and the labels of a validation set."""

import numpy as np
import smdebug.xgboost as smd
import xgboost
from smdebug.trials import create_trial

x = np.random.default_rng(0).normal(size=(50, 3))
data = xgboost.DMatrix(x, x[:, 0] * 2 + x[:, 1] - x[:, 2])
hook = smd.Hook(
    "run",
    include_collections=["predictions", "labels"],
    validation_data=data,
    save_config=smd.SaveConfig(save_interval=1),
)
parameters = {"eta": 0.5, "max_depth": 2, "nthread": 1}
xgboost.train(parameters, data, 2, evals=[(data, "train")], callbacks=[hook], verbose_eval=False)
hook.close()
trial = create_trial("run")
for name in ("predictions", "labels"):
    print(name, trial.tensor(name).steps(), trial.tensor(name).value(1).shape, trial.tensor(name).value(1).dtype)
