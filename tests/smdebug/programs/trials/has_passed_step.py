"""Ask whether a step was passed, in an ended job."""

from torch_job import trained

trial = trained(5, save_interval=2)
print([trial.has_passed_step(step).name for step in range(7)])
