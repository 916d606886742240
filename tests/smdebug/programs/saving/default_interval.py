"""Save step 0 and then every 500th step by default."""

from torch_job import trained

trial = trained(502, save_config=None)
print(trial.steps())
