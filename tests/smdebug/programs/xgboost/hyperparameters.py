"""Save the hyperparameters that the script names."""

import numpy as np

from boosting_job import trained

trial = trained(1, include_collections=["hyperparameters"], hyperparameters={"eta": 0.5, "max_depth": 2})
print(sorted(trial.tensor_names(collection="hyperparameters")))
print([np.ravel(trial.tensor(f"hyperparameters/{name}").value(0)).tolist() for name in ("eta", "max_depth")])
