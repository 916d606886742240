-- Which steps were saved, and which of them are complete?
-- Parameters: $mode ('GLOBAL' counts over all modes), $num_workers, $num_ended (how many workers catalogue.ended has),
--   $session_start (the first global step of the newest session; nothing before it is still being written), $job_ended,
--   $window (more incomplete steps than this are not waited for: the older half of them counts as complete), $after (a
--   global step that is complete for good, whose successors are wanted; -1 for all).
-- Columns: step, complete, last_step (its global step), settled (whether it stays complete while the session lasts); ascending.

with progress as (
    -- A worker that has ended will not write the steps that it lacks.
    select
        max(global_step) as last_step,
        max(case when mode = $mode then mode_step end) as last_of_mode,
        row_number() over (order by max(global_step) desc) as place
    from catalogue.steps
    left join catalogue.ended on ended.worker = steps.worker
    where ended.worker is null and global_step >= $session_start
    group by steps.worker
),
-- A worker writes its steps in order. What all have written or gone past is complete: a global step, and a step of a mode
-- among the workers that have saved any.
common as (
    select
        -- Not count(*): DuckDB 1.5 makes one row of nulls of no rows where the place is at most 1.
        count(last_step) >= $num_workers - $num_ended as all_write,
        min(last_step) as last_step,
        min(last_of_mode) as last_of_mode,
        min(case when last_of_mode is null then last_step end) as last_step_of_others
    from progress
    where place <= $num_workers - $num_ended
),
-- Until here one step of a mode is one global step for all workers.
apart as (
    select min(global_step) as first_step
    from (
        select global_step
        from catalogue.steps
        where $mode <> 'GLOBAL' and global_step > $after
        group by global_step
        having min(mode) <> max(mode) or min(mode_step) <> max(mode_step)
        union all
        select min(global_step) as global_step
        from catalogue.steps
        where $mode <> 'GLOBAL' and global_step > $after
        group by mode, mode_step
        having min(global_step) <> max(global_step)
    ) as uneven
),
late as (
    select steps.global_step, row_number() over (order by steps.global_step) as position, count(*) over () as total
    from (select distinct global_step from catalogue.steps where global_step > $after) as steps
    cross join common
    where steps.global_step >= $session_start and not (all_write and steps.global_step <= coalesce(last_step, steps.global_step))
),
given_up as (
    select max(global_step) as last_step
    from late
    where total > $window and position <= total / 2
),
saved as (
    select
        case when $mode = 'GLOBAL' then global_step else mode_step end as step,
        min(global_step) as first_step,
        max(global_step) as last_step
    from catalogue.steps
    where global_step > $after and ($mode = 'GLOBAL' or mode = $mode)
    group by 1
),
states as (
    select
        step,
        saved.last_step,
        saved.first_step < $session_start
            or (all_write and saved.first_step <= coalesce(common.last_step, saved.first_step)) as passed,
        coalesce(saved.first_step < apart.first_step, true) as together,
        saved.first_step < $session_start
            or (
                all_write
                and step <= coalesce(last_of_mode, step)
                and saved.first_step <= coalesce(last_step_of_others, saved.first_step)
            ) as passed_in_mode,
        $job_ended or coalesce(saved.first_step <= given_up.last_step, false) as awaited_no_more
    from saved
    cross join common
    cross join apart
    cross join given_up
)
select
    step,
    -- A step is complete once a later one is.
    bool_or(
        awaited_no_more or case when together then passed else passed_in_mode end
    ) over (order by step desc rows between unbounded preceding and current row) as complete,
    last_step,
    together and passed as settled
from states
order by step
