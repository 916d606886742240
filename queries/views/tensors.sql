-- View `tensors`: the index, one row a saved tensor.
-- Columns: run, name, mode, mode_step, global_step, worker, dtype, shape, nbytes, saved_at, collections, scalar (the
--   value of a tensor of one element), one for each statistic, histogram, the location of the raw value (chunk, row group,
--   row), parameter (of a gradient), digest (of the raw value), and "order" (the position in the execution of the step).

select *
from catalogue.tensors
