-- View `tensors`: the index, one row a saved tensor.
-- Columns: run, name, mode, mode_step, global_step, worker, dtype, shape, nbytes, saved_at (UTC), collections, scalar (the
--   value of a tensor of one element), one for each statistic, histogram, where the raw value is in which chunk, parameter
--   (of a gradient), digest (of the raw value), and "order" (the place in the execution of the step).

select *
from catalogue.tensors
