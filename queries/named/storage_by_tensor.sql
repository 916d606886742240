-- Which tensors take the most space?
-- Parameters:
--   $runs text '%': a LIKE pattern of runs
--   $limit integer 50: the number of tensors, largest first
-- Columns: run, name, steps, raw_values (their number), tensor_bytes (their size before compression),
--   last_step (the global one).

select
    run, name, count(distinct global_step) as steps, count(chunk) as raw_values,
    cast(sum(case when chunk is null then 0 else nbytes end) as bigint) as tensor_bytes, max(global_step) as last_step
from tensors
where run like $runs
group by run, name
order by tensor_bytes desc nulls last, run, name
limit $limit
