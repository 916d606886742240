-- How long does a step take, from one saved step to the next?
-- Parameters:
--   $runs text '%': a LIKE pattern of runs
-- Columns: run, worker, mode, steps (the number of timed steps), seconds (the mean of a step), longest (the
--   maximum of a step).
-- The time between two saved steps is divided by the number of steps between them.

with saved as (
    select
        run, worker, mode,
        global_step - lag(global_step) over (partition by run, worker order by global_step nulls first) as steps,
        cast(
            date_diff(
                'microsecond', lag(saved_at) over (partition by run, worker order by global_step nulls first), saved_at
            ) as double
        ) / 1e6 as seconds
    from steps
    where run like $runs
)
select
    run, worker, mode, cast(sum(steps) as bigint) as steps, cast(sum(seconds) / sum(steps) as double) as seconds,
    cast(max(seconds / steps) as double) as longest
from saved
where steps > 0
group by run, worker, mode
order by run, worker, mode
