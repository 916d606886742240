-- Where did the norm of a weight change most from one saved step to the next?
-- Parameters:
--   $runs text '%': a LIKE pattern of runs
--   $collection text 'weights': the collection whose norms are compared
--   $limit integer 20: the number of changes, largest first
-- Columns: run, name, worker, mode, mode_step, norm, norm_before (at the previous saved step), change (norm - norm_before).
-- Needs: l2 of $collection.
-- Norms that are not finite are skipped.

with saved as (
    select run, name, worker, mode, mode_step, global_step, {l2} as norm
    from tensors
    where run like $runs and list_contains(collections, $collection)
),
norms as (
    select
        run, name, worker, mode, mode_step, global_step, norm,
        lag(norm) over (partition by run, name, worker order by global_step nulls first) as norm_before
    from saved
    where norm between 0 and 1.7976931348623157e308
)
select run, name, worker, mode, mode_step, norm, norm_before, norm - norm_before as change
from norms
where norm_before is not null
order by abs(norm - norm_before) desc nulls last, run, name, worker, global_step
limit $limit
