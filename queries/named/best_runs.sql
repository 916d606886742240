-- Which runs came to the best value of a scalar, and at which step?
-- Parameters:
--   $name scalar 'loss': the scalar
--   $mode text '%': a LIKE pattern of the mode
--   $largest boolean false: true if the largest value is the best, not the smallest
--   $limit integer 20: the number of runs, best first
-- Columns: run, best, mode, mode_step, worker.
-- Keras reports means over the epoch so far, which cover a single batch at first. Of such values, only the last one before
-- the mode changes, or the run ends, counts.

with counted as (
    select
        run, worker, mode, global_step,
        row_number() over (partition by run, worker order by global_step nulls first)
            - row_number() over (partition by run, worker, mode order by global_step nulls first) as stretch
    from steps
),
found as (
    select
        scalars.run as run, scalars.value as value, scalars.mode as mode, scalars.mode_step as mode_step,
        scalars.worker as worker, scalars.global_step as global_step,
        case
            when runs.framework = 'keras' and (list_contains(scalars.collections, 'losses')
                or list_contains(scalars.collections, 'metrics')) then 1
            else 0
        end as is_mean,
        row_number() over (
            partition by scalars.run, scalars.worker, scalars.mode, counted.stretch
            order by scalars.global_step desc nulls last
        ) as from_last
    from scalars
    join runs on runs.run = scalars.run
    join counted
        on counted.run = scalars.run and counted.worker = scalars.worker and counted.global_step = scalars.global_step
    where scalars.name = $name and scalars.mode like $mode
),
ranked as (
    select
        run, value, mode, mode_step, worker, case when $largest then -value else value end as cost,
        row_number() over (
            partition by run
            order by case when $largest then -value else value end nulls last, global_step nulls first, worker nulls first
        ) as place
    from found
    where value between -1.7976931348623157e308 and 1.7976931348623157e308 and (is_mean = 0 or from_last = 1)
)
select run, value as best, mode, mode_step, worker
from ranked
where place = 1
order by cost, run
limit $limit
