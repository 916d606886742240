-- Which worker saved which global step as a step of a mode, and in which mode?
-- Parameters: $mode ('GLOBAL' counts over all modes), $step. Columns: worker, global_step, mode, mode_step; ascending.

select distinct worker, global_step, mode, mode_step
from catalogue.steps
where ($mode = 'GLOBAL' or mode = $mode) and case when $mode = 'GLOBAL' then global_step else mode_step end = $step
order by worker, global_step
