"""Read the matrix of SHAP values under the name of a feature, as published notebooks do."""

import numpy as np
import smdebug.xgboost as smd
import xgboost
from smdebug.trials import create_trial

x = np.random.default_rng(0).normal(size=(50, 3))
data = xgboost.DMatrix(x, x[:, 0] * 2 + x[:, 1] - x[:, 2])
hook = smd.Hook("run", include_collections=["full_shap"], train_data=data, save_config=smd.SaveConfig(save_interval=1))
parameters = {"eta": 0.5, "max_depth": 2, "nthread": 1}
xgboost.train(parameters, data, 2, evals=[(data, "train")], callbacks=[hook], verbose_eval=False)
hook.close()
trial = create_trial("run")
print(sorted(trial.tensor_names(collection="full_shap")))
values = trial.tensor("full_shap/f0").value(1)
print(values.shape, values[:, :-1].shape, values.dtype, np.round(values[0], 3).tolist())
