"""Save all, and list the biases of SHAP values."""

import numpy as np
import smdebug.xgboost as smd
import xgboost
from smdebug.trials import create_trial

x = np.random.default_rng(0).normal(size=(50, 3))
data = xgboost.DMatrix(x, x[:, 0] * 2 + x[:, 1] - x[:, 2])
hook = smd.Hook("run", train_data=data, save_all=True, save_config=smd.SaveConfig(save_interval=1))
parameters = {"eta": 0.5, "max_depth": 2, "nthread": 1}
xgboost.train(parameters, data, 1, evals=[(data, "train")], callbacks=[hook], verbose_eval=False)
hook.close()
print(sorted(name for name in create_trial("run").tensor_names() if "bias" in name))
