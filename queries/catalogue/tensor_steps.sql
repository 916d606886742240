-- At which steps was a tensor saved?
-- Parameters: $name, $mode ('GLOBAL' counts over all modes).
-- Columns: step; ascending.

with holding as (
    select distinct name_sets.name_set
    from catalogue.names
    join catalogue.name_sets on name_sets.name_id = names.name_id
    where names.name = $name
)
select distinct case when $mode = 'GLOBAL' then global_step else mode_step end as step
from catalogue.steps
join holding on holding.name_set = steps.name_set
where $mode = 'GLOBAL' or mode = $mode
order by step
