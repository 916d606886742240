-- Which steps are known of the flushes that an index file holds?
-- Parameters: $path. Columns: global_step.

select steps.global_step
from catalogue.files
join catalogue.steps on steps.file_id = files.file_id
where files.path = $path
