-- Which tensors held NaN or infinity first, and when?
-- Parameters:
--   $runs text '%': a LIKE pattern of runs
--   $limit integer 20: the number of tensors of each run, earliest first
-- Columns: run, place (1 is the first of its run), name, worker, mode, mode_step, global_step, nan_count, inf_count
--   (numbers of elements; null if not saved, where the value, its mean or its l2 is NaN or infinite).

with bad as (
    select
        run, name, worker, mode, mode_step, global_step, nan_count, inf_count,
        row_number() over (partition by run, name order by global_step nulls first, worker nulls first) as again
    from tensors
    -- Some engines order NaN above all numbers, others cannot compare it. So the test is that a value is not in between.
    -- An empty tensor has a mean of NaN, too.
    where run like $runs
        and (
            nan_count > 0 or inf_count > 0
            or not scalar between -1.7976931348623157e308 and 1.7976931348623157e308
            or (nbytes > 0 and not mean between -1.7976931348623157e308 and 1.7976931348623157e308)
            or (nbytes > 0 and not l2 between -1.7976931348623157e308 and 1.7976931348623157e308)
        )
),
placed as (
    select
        run, name, worker, mode, mode_step, global_step, nan_count, inf_count,
        row_number() over (partition by run order by global_step nulls first, name nulls first) as place
    from bad
    where again = 1
)
select run, place, name, worker, mode, mode_step, global_step, nan_count, inf_count
from placed
where place <= $limit
order by run, place
