-- Which steps are there, and which of them are complete?
-- Parameters: $mode ('GLOBAL' counts over all modes), $num_workers, $job_ended, $window (more incomplete steps than this
--   are not waited for: the older half of them counts as complete).
-- Columns: step, complete; ascending.

with written as (
    select
        case when $mode = 'GLOBAL' then global_step else mode_step end as step,
        count(distinct worker) >= $num_workers as whole
    from catalogue.steps
    where $mode = 'GLOBAL' or mode = $mode
    group by 1
),
-- A step that a worker skipped is never written by all: it is complete once a later one is.
reached as (
    select step, coalesce(step <= (select max(step) from written where whole), false) as passed
    from written
),
incomplete as (
    select step, row_number() over (order by step) as position, count(*) over () as total
    from reached
    where not passed
)
select
    reached.step,
    reached.passed or $job_ended or coalesce(total > $window and position <= total / 2, false) as complete
from reached
left join incomplete on incomplete.step = reached.step
order by reached.step
