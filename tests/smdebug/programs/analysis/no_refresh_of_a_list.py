"""Read several trials without refreshing them."""

from smdebug.analysis.utils import no_refresh
from smdebug.trials import create_trial

from torch_job import trained

trial = trained(2)
other = create_trial("run")
with no_refresh([trial, other]):
    print(trial.steps() == other.steps())
