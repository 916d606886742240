-- Which steps are known of the flushes that an index file holds?
-- Parameters: $path. Columns: global_step, name_set.

select steps.global_step, steps.name_set
from catalogue.files
join catalogue.steps on steps.file_id = files.file_id
where files.path = $path
