"""Read the matrix of SHAP values under the name of a feature, as published notebooks do."""

import numpy as np

from boosting_job import data, trained

trial = trained(2, include_collections=["full_shap"], train_data=data)
print(sorted(trial.tensor_names(collection="full_shap")))
values = trial.tensor("full_shap/f0").value(1)
print(values.shape, values[:, :-1].shape, values.dtype, np.round(values[0], 3).tolist())
