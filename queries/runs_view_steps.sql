-- View `steps` over many runs: which worker wrote which step, when (UTC), and how many tensors of it.
-- Columns: run, mode, mode_step, global_step, worker, saved_at, num_tensors.

create or replace view steps as
select run, mode, mode_step, global_step, worker, max(saved_at) as saved_at, count(*) as num_tensors
from tensors
group by run, mode, mode_step, global_step, worker
