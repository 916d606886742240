-- Which tensors, of which collections, are in the sets of names that were found after one?
-- Parameters: $after (a name_set).
-- Columns: name_set, name, collections; by set and name.

select name_sets.name_set, names.name, names.collections
from catalogue.name_sets
join catalogue.names on names.name_id = name_sets.name_id
where name_sets.name_set > $after
order by name_sets.name_set, names.name
