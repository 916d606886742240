-- Which mode step is which global step?
-- No parameters. Columns: mode, mode_step, global_step; by global step.

select distinct mode, mode_step, global_step
from catalogue.steps
order by global_step
