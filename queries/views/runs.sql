-- View `runs`: the runs that were opened together.
-- Columns: run, path, started_at, ended_at (null while it is written), framework, versions (JSON), workers, steps (number
--   of global steps with a saved tensor), tensor_bytes (of all saved tensors, in memory), file_bytes (of all files of the
--   run), metadata (JSON, as passed to the hook).

with sizes as (
    select run, count(distinct global_step) as steps, sum(nbytes)::bigint as tensor_bytes
    from catalogue.tensors group by run
)
select
    run, path, started_at, ended_at, framework, versions, workers, coalesce(steps, 0) as steps, coalesce(tensor_bytes, 0) as tensor_bytes,
    file_bytes, metadata
from catalogue.runs
left join sizes using (run)
