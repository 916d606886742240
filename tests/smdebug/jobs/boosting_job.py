"""The job of most programs for XGBoost: trees that learn a sum of three features."""

import numpy as np
import smdebug.xgboost as smd
import xgboost
from smdebug.trials import create_trial

x = np.random.default_rng(0).normal(size=(50, 3))
data = xgboost.DMatrix(x, x[:, 0] * 2 + x[:, 1] - x[:, 2])


def train(hook, rounds, **arguments):
    """Boost trees for some rounds, and return a trial of the job, which has ended."""
    parameters = {"eta": 0.5, "max_depth": 2, "nthread": 1, **arguments.pop("parameters", {})}
    evals = arguments.pop("evals", [(data, "train")])
    xgboost.train(parameters, data, rounds, evals=evals, callbacks=[hook], verbose_eval=False, **arguments)
    hook.close()
    return create_trial("run")


def trained(rounds, save_interval=1, **options):
    """Return a trial of a job with a hook that has these options."""
    options.setdefault("save_config", smd.SaveConfig(save_interval=save_interval))
    return train(smd.Hook("run", **options), rounds)
