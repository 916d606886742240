"""Refresh a trial in a block only."""

from smdebug.analysis.utils import no_refresh, refresh

from torch_job import trained

trial = trained(2)
with no_refresh(trial), refresh(trial):
    print(trial.steps())
