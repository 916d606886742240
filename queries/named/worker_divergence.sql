-- Which tensors differ between workers that should hold equal ones, and since when?
-- Parameters:
--   $runs text '%': a LIKE pattern of runs
--   $collection text 'weights': the collection whose norms are compared
--   $tolerance number 1e-6: the largest difference of equal norms, as a part of the largest norm
-- Columns: run, name, steps (the number at which it differs), first_step (global), spread (the largest difference of
--   two norms at a step, as a part of the larger one).
-- Needs: l2 of $collection.

with saved as (
    select run, name, global_step, {l2} as norm
    from tensors
    where run like $runs and list_contains(collections, $collection)
),
norms as (
    select run, name, global_step, min(norm) as smallest, max(norm) as largest
    from saved
    where norm between 0 and 1.7976931348623157e308
    group by run, name, global_step
),
spreads as (
    select run, name, global_step, (largest - smallest) / largest as apart
    from norms
    where largest > 0
)
select run, name, count(*) as steps, min(global_step) as first_step, max(apart) as spread
from spreads
where apart > $tolerance
group by run, name
order by max(apart) desc nulls last, run, name
