"""Save the importances of features."""

from boosting_job import trained

trial = trained(3, include_collections=["feature_importance"])
print(sorted(trial.tensor_names(collection="feature_importance")))
print(trial.tensor("feature_importance/weight/f2").steps())
