-- How did the losses go, in each mode?
-- Parameters:
--   $runs text '%': names of runs, as LIKE has them
--   $collection text 'losses': the collection of the scalars that are wanted
-- Columns: run, mode, name, mode_step, loss (the mean of the workers), workers (how many saved it).

select run, mode, name, mode_step, avg(value) as loss, count(*) as workers
from scalars
where run like $runs and list_contains(collections, $collection)
group by run, mode, name, mode_step
order by run, mode, name, mode_step
