"""Read importances of features."""

import numpy as np

from boosting_job import trained

trial = trained(1, include_collections=["feature_importance"])
print([round(float(np.ravel(trial.tensor(f"feature_importance/weight/f{i}").value(0))[0]), 3) for i in range(2)])
