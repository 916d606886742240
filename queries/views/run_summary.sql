-- View `run_summary`: a row for each scalar of a run in each mode, over all steps and workers.
-- Columns: run, name, mode, last (the value at last_step; if several workers saved it, of the last one by name), last_step,
--   min, max (of the finite values), steps (number of global steps with a value).
-- The text runs in any SQL database, as the view of an export. Only a finite value minus itself is 0.

with ranked as (
    select
        run, name, mode, global_step, scalar,
        case when scalar - scalar = 0 then scalar end as finite,
        row_number() over (partition by run, name, mode order by global_step desc, worker desc) as place
    from catalogue.tensors
    where scalar is not null
)
select
    run, name, mode,
    max(case when place = 1 then scalar end) as last,
    max(global_step) as last_step,
    min(finite) as min,
    max(finite) as max,
    count(distinct global_step) as steps
from ranked
group by run, name, mode
