-- View `steps`: which worker wrote which step, when (UTC), and how many tensors of it.
-- Columns: run, mode, mode_step, global_step, worker, saved_at, num_tensors.

with sizes as (
    select name_set, count(*) as num_tensors from catalogue.name_sets group by name_set
)
select files.run, mode, mode_step, global_step, steps.worker, saved_at, coalesce(num_tensors, 0) as num_tensors
from catalogue.steps as steps
join catalogue.files as files on files.file_id = steps.file_id
left join sizes on sizes.name_set = steps.name_set
