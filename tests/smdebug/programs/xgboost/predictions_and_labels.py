"""Save the predictions and the labels of a validation set."""

from boosting_job import data, trained

trial = trained(2, include_collections=["predictions", "labels"], validation_data=data)
for name in ("predictions", "labels"):
    print(name, trial.tensor(name).steps(), trial.tensor(name).value(1).shape, trial.tensor(name).value(1).dtype)
