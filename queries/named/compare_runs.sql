-- How do two runs differ, step by step?
-- Parameters:
--   $left run: the name of a run
--   $right run: the name of another
--   $names text '%': a LIKE pattern of scalars
-- Columns: name, mode, mode_step, left_value, right_value (means of the workers; null where a run lacks the step),
--   difference (right - left).

with values_of_both as (
    select
        name, mode, mode_step,
        avg(case when run = $left then value end) as left_value,
        avg(case when run = $right then value end) as right_value
    from scalars
    where run in ($left, $right) and name like $names
    group by name, mode, mode_step
)
select name, mode, mode_step, left_value, right_value, right_value - left_value as difference
from values_of_both
order by name, mode, mode_step
