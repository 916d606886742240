-- At which steps does a loss jump above the mean of the twenty values before it?
-- Parameters:
--   $runs text '%': a LIKE pattern of runs
--   $collection text 'losses': the collection of the scalars
--   $factor number 2: the least ratio of a spike to the mean
-- Columns: run, name, worker, mode, mode_step, value, mean_before.
-- Needs losses above 0, and five values before a spike. Values that are not finite are skipped.

with losses as (
    select
        run, name, worker, mode, mode_step, value,
        avg(value) over (
            partition by run, name, worker, mode order by mode_step nulls first rows between 20 preceding and 1 preceding
        ) as mean_before,
        count(value) over (
            partition by run, name, worker, mode order by mode_step nulls first rows between 20 preceding and 1 preceding
        ) as values_before
    from scalars
    where run like $runs and list_contains(collections, $collection)
        and value between -1.7976931348623157e308 and 1.7976931348623157e308
)
select run, name, worker, mode, mode_step, value, mean_before
from losses
where values_before >= 5 and mean_before > 0 and value > $factor * mean_before
order by run, name, worker, mode, mode_step
