"""Bind the trials that are not refreshed to names."""

from smdebug.analysis.utils import no_refresh

from torch_job import trained

trial = trained(2)
with no_refresh([trial]) as [same]:
    print(same is trial)
