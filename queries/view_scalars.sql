-- View `scalars`: losses, metrics and every other saved tensor of one element.
-- Columns: name, mode, mode_step, global_step, worker, saved_at (UTC), value, collections.

create or replace view scalars as
select name, mode, mode_step, global_step, worker, saved_at, scalar as value, collections
from tensors
where scalar is not null
