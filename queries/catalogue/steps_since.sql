-- Which steps came with the index files that were found after one?
-- Parameters: $after (a file_id).
-- Columns: file_id, mode, mode_step, global_step, saved_at (seconds since 1970), name_set; by file and step.

select file_id, mode, mode_step, global_step, epoch_us(saved_at) / 1e6 as saved_at, name_set
from catalogue.steps
where file_id > $after
order by file_id, global_step
