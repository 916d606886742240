-- View `steps`: which worker wrote which step, when (UTC), and how many tensors of it.
-- Columns: run, mode, mode_step, global_step, worker, saved_at, num_tensors.

select run, mode, mode_step, global_step, worker, saved_at, num_tensors
from catalogue.steps
