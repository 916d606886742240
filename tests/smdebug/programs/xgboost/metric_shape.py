"""Read the shape of a metric."""

from boosting_job import trained

trial = trained(1)
print(trial.tensor("train-rmse").value(0).shape)
