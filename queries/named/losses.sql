-- How did the losses develop, in each mode?
-- Parameters:
--   $runs text '%': a LIKE pattern of runs
--   $collection text 'losses': the collection of the scalars
-- Columns: run, mode, name, mode_step, loss (the mean of the workers), workers (the number that saved it).

select run, mode, name, mode_step, avg(value) as loss, count(*) as workers
from scalars
where run like $runs and list_contains(collections, $collection)
group by run, mode, name, mode_step
order by run, mode, name, mode_step
