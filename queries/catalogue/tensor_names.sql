-- Which tensors were saved, at any step?
-- Parameters: $mode ('GLOBAL' is any).
-- Columns: name, collections; by name.

with selected as (
    select distinct name_set
    from catalogue.name_sets
    where $mode = 'GLOBAL'
    union all
    select distinct name_set
    from catalogue.steps
    where $mode <> 'GLOBAL' and mode = $mode
)
select distinct names.name, names.collections
from selected
join catalogue.name_sets on name_sets.name_set = selected.name_set
join catalogue.names on names.name_id = name_sets.name_id
order by names.name
