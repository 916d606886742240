"""Save every second step."""

from gluon_job import trained

trial = trained(save_interval=2)
print(trial.steps())
