"""Compare two trials of one path."""

from smdebug.trials import create_trial

from torch_job import trained

trial = trained(1, save_interval=2)
other = create_trial("run", name="other")
print(trial == other, hash(trial) == hash(other), len({trial, other}))
