"""Save the average SHAP value of each feature."""

from boosting_job import data, trained

trial = trained(2, include_collections=["average_shap"], train_data=data)
print(sorted(trial.tensor_names(collection="average_shap")), trial.tensor("average_shap/f1").steps())
