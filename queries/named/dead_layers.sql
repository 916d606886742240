-- Which outputs are dead: nearly zero in every element, at most of their steps?
-- Parameters:
--   $runs text '%': a LIKE pattern of runs
--   $names text '%output%': a LIKE pattern of tensors
--   $threshold number 1e-8: an output is dead at a step if no element is larger than this
--   $share number 0.5: the least share of its steps at which it is dead
-- Columns: run, name, steps, dead_steps, last_dead_step (the global one), share.
-- Needs: abs_max of names $names.

with outputs as (
    select run, name, global_step, {abs_max} as largest
    from tensors
    where run like $runs and name like $names
),
counted as (
    select
        run, name, count(*) as steps, sum(case when largest <= $threshold then 1 else 0 end) as dead_steps,
        max(case when largest <= $threshold then global_step end) as last_dead_step
    from outputs
    where largest is not null
    group by run, name
)
select run, name, steps, dead_steps, last_dead_step, cast(dead_steps as double) / steps as share
from counted
where dead_steps > 0 and cast(dead_steps as double) / steps >= $share
order by share desc nulls last, run, name
