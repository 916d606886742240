-- Which worker keeps the others waiting?
-- Parameters:
--   $runs text '%': a LIKE pattern of runs
-- Columns: run, worker, steps, times_last (steps that it finished after all others), seconds_behind (the mean
--   delay after the first worker, over its steps).

with finished as (
    select
        run, worker, global_step, saved_at,
        min(saved_at) over (partition by run, global_step) as first_at,
        row_number() over (partition by run, global_step order by saved_at desc nulls last, worker nulls first) as from_last,
        count(*) over (partition by run, global_step) as workers
    from steps
    where run like $runs
)
select
    run, worker, count(*) as steps, sum(case when from_last = 1 then 1 else 0 end) as times_last,
    avg(date_diff('microsecond', first_at, saved_at)) / 1e6 as seconds_behind
from finished
where workers > 1
group by run, worker
order by run, times_last desc nulls last, worker
