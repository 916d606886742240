-- View `scalars`: losses, metrics and every other saved tensor of one element.
-- Columns: run, name, mode, mode_step, global_step, worker, saved_at, value, collections.

select run, name, mode, mode_step, global_step, worker, saved_at, scalar as value, collections
from catalogue.tensors
where scalar is not null
