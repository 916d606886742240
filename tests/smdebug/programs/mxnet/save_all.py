"""Save all tensors."""

from gluon_job import trained

trial = trained(save_all=True)
print(*sorted(trial.tensor_names()), sep="\n")
