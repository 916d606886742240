-- How long does a step take, from one saved step to the next?
-- Parameters:
--   $runs text '%': names of runs, as LIKE has them
-- Columns: run, worker, mode, steps (that were timed), seconds (of a step, the mean), longest (of a step, in seconds).
-- Between two saved steps the steps in between count.

with saved as (
    select
        run, worker, mode,
        global_step - lag(global_step) over (partition by run, worker order by global_step nulls first) as steps,
        date_diff(
            'microsecond', lag(saved_at) over (partition by run, worker order by global_step nulls first), saved_at
        ) / 1e6 as seconds
    from steps
    where run like $runs
)
select run, worker, mode, sum(steps) as steps, sum(seconds) / sum(steps) as seconds, max(seconds / steps) as longest
from saved
where steps > 0
group by run, worker, mode
order by run, worker, mode
