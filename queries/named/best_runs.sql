-- Which runs came to the best value of a scalar, and at which step?
-- Parameters:
--   $name scalar 'loss': the scalar
--   $mode text '%': the mode, as LIKE has it
--   $largest boolean false: whether the largest value is the best; else the smallest is
--   $limit integer 20: so many runs, the best first
-- Columns: run, best, mode, mode_step, worker.

with ranked as (
    select
        run, value, mode, mode_step, worker, case when $largest then -value else value end as cost,
        row_number() over (
            partition by run
            order by case when $largest then -value else value end nulls last, global_step nulls first, worker nulls first
        ) as place
    from scalars
    where name = $name and mode like $mode and value between -1.7976931348623157e308 and 1.7976931348623157e308
)
select run, value as best, mode, mode_step, worker
from ranked
where place = 1
order by cost, run
limit $limit
