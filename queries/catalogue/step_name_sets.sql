-- Which sets of names does each step hold?
-- Parameters: $mode ('GLOBAL' counts over all modes).
-- Columns: step, name_set.

select distinct case when $mode = 'GLOBAL' then global_step else mode_step end as step, name_set
from catalogue.steps
where $mode = 'GLOBAL' or mode = $mode
