"""Read the average SHAP value of each feature."""

import numpy as np

from boosting_job import data, trained

trial = trained(1, include_collections=["average_shap"], train_data=data)
print([round(float(np.ravel(trial.tensor(f"average_shap/f{i}").value(0))[0]), 3) for i in range(3)])
