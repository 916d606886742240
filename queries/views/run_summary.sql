-- View `run_summary`: a row for each scalar of a run in each mode, over all steps and workers.
-- Columns: run, name, mode, last (the value at last_step; of several workers, that of the last one by name), last_step,
--   min, max (of the finite values), steps (number of global steps with a value).
-- Any SQL database runs it: the same text is the view of an export. A difference of 0 to itself has only a finite value.

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
