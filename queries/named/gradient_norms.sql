-- How large are the gradients of each tensor, step by step?
-- Parameters:
--   $runs text '%': a LIKE pattern of runs
--   $collection text 'gradients': the collection of the tensors
--   $mode text '%': a LIKE pattern of modes
-- Columns: run, name, worker, mode, mode_step, norm (the saved l2, or derived from other statistics).
-- Needs: l2 of $collection.

select run, name, worker, mode, mode_step, {l2} as norm
from tensors
where run like $runs and list_contains(collections, $collection) and mode like $mode and {l2} is not null
order by run, name, worker, mode, mode_step
