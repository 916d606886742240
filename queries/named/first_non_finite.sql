-- Which tensors held NaN or infinity first, and when?
-- Parameters:
--   $runs text '%': names of runs, as LIKE has them
--   $limit integer 20: so many tensors of each run, the first first
-- Columns: run, place (1 is the first of its run), name, worker, mode, mode_step, global_step, nan_count, inf_count (how
--   many elements; null where they were not saved, and the value, its mean or its l2 shows it).

with bad as (
    select
        run, name, worker, mode, mode_step, global_step, nan_count, inf_count,
        row_number() over (partition by run, name order by global_step nulls first, worker nulls first) as again
    from tensors
    -- NaN is larger than any number to some engines, and not comparable to others: so it is what is not in between.
    -- The mean of no element is NaN, too.
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
