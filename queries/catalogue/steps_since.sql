-- Which steps came with the index files that were found after one?
-- Parameters: $after (a file_id).
-- Columns: file_id (the last one of the step), mode, mode_step, global_step, saved_at (seconds since 1970, of the first
--   worker), name_set; by file and step.

select
    max(file_id) as file_id, mode, mode_step, global_step, min(epoch_us(saved_at)) / 1e6 as saved_at, name_set
from catalogue.steps
where file_id > $after
group by mode, mode_step, global_step, name_set
order by 1, global_step  -- by position: Spark would take the column inside max(file_id) for the alias
