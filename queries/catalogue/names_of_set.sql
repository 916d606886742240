-- Which tensors are in a set of names?
-- Parameters: $name_set.
-- Columns: name, collections; by name.

select names.name, names.collections
from catalogue.name_sets
join catalogue.names on names.name_id = name_sets.name_id
where name_sets.name_set = $name_set
order by names.name
