"""Save all tensors."""

from boosting_job import data, trained

trial = trained(1, save_all=True, train_data=data, validation_data=data)
print(sorted({name.partition("/")[0] for name in trial.tensor_names()}))
