"""Pass the hook to an estimator of scikit-learn's interface."""

import numpy as np
import smdebug.xgboost as smd
import xgboost
from smdebug.trials import create_trial

x = np.random.default_rng(0).normal(size=(50, 3))
hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
model = xgboost.XGBRegressor(n_estimators=3, max_depth=2, n_jobs=1, callbacks=[hook])
model.fit(x, x[:, 0], eval_set=[(x, x[:, 0])], verbose=False)
hook.close()
trial = create_trial("run")
print(sorted(trial.tensor_names()), trial.steps())
