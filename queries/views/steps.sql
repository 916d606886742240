-- View `steps`: the steps of each worker, with their time and their number of tensors.
-- Columns: run, mode, mode_step, global_step, worker, saved_at, num_tensors.

select run, mode, mode_step, global_step, worker, saved_at, num_tensors
from catalogue.steps
