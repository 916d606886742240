-- View `steps`: which worker wrote which step, when (UTC), and how many tensors of it.
-- Columns: mode, mode_step, global_step, worker, saved_at, num_tensors.

create or replace view steps as
with sizes as (
    select name_set, count(*) as num_tensors from catalogue.name_sets group by name_set
)
select mode, mode_step, global_step, worker, saved_at, coalesce(num_tensors, 0) as num_tensors
from catalogue.steps
left join sizes using (name_set)
