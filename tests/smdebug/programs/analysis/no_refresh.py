"""Read a trial without refreshing it."""

from smdebug.analysis.utils import no_refresh

from torch_job import trained

trial = trained(2)
with no_refresh(trial):
    print(trial.steps(), trial.tensor_names())
