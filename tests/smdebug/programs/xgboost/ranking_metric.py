"""Save a metric whose name has an `@`."""

import smdebug.xgboost as smd
import xgboost
from smdebug.trials import create_trial

from boosting_job import x

hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=1))
data = xgboost.DMatrix(x, (x[:, 0] > 0).astype(int), group=[25, 25])
parameters = {"objective": "rank:ndcg", "eval_metric": "ndcg@5", "nthread": 1}
xgboost.train(parameters, data, 2, evals=[(data, "train")], callbacks=[hook], verbose_eval=False)
hook.close()
trial = create_trial("run")
print(sorted(trial.tensor_names()))
