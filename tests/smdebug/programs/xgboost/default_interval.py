"""Save every tenth round by default."""

from boosting_job import trained

trial = trained(25, save_config=None)
print(trial.steps())
