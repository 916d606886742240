"""Save all, and list the biases of SHAP values."""

from boosting_job import data, trained

trial = trained(1, train_data=data, save_all=True)
print(sorted(name for name in trial.tensor_names() if "bias" in name))
