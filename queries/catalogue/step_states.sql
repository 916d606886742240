-- Which steps were saved, and which of them are complete?
-- Parameters: $mode ('GLOBAL' counts over all modes), $num_workers, $num_ended (how many workers catalogue.ended has),
--   $session_start (the first global step of the newest session; nothing before it is still being written), $job_ended,
--   $window (more incomplete steps than this are not waited for: the older half of them counts as complete), $after (a
--   global step that is complete for good, whose successors are wanted; -1 for all).
-- Columns: step, complete, last_step (its global step), settled (whether it stays complete while the session lasts); ascending.

with written as (
    select
        global_step,
        -- A worker that has ended will not write the steps that it lacks.
        global_step < $session_start
            or count(distinct case when ended.worker is null then steps.worker end) >= $num_workers - $num_ended as whole
    from catalogue.steps
    left join catalogue.ended on ended.worker = steps.worker
    where global_step > $after
    group by global_step
),
-- Workers write in the order of global steps: a step that one of them skipped is never written by all, and is complete once
-- a later one is, in any mode.
reached as (
    select global_step, coalesce(global_step <= (select max(global_step) from written where whole), false) as passed
    from written
),
incomplete as (
    select global_step, row_number() over (order by global_step) as position, count(*) over () as total
    from reached
    where not passed
),
states as (
    select
        reached.global_step,
        reached.passed,
        reached.passed or $job_ended or coalesce(total > $window and position <= total / 2, false) as complete
    from reached
    left join incomplete on incomplete.global_step = reached.global_step
)
select
    case when $mode = 'GLOBAL' then steps.global_step else mode_step end as step,
    bool_or(complete) as complete,
    max(steps.global_step) as last_step,
    bool_and(passed) as settled
from catalogue.steps
join states on states.global_step = steps.global_step
where steps.global_step > $after and ($mode = 'GLOBAL' or mode = $mode)
group by step
order by step
