-- Which tensors differ between workers that should hold the same, and since when?
-- Parameters:
--   $runs text '%': names of runs, as LIKE has them
--   $collection text 'weights': the collection whose norms are compared
--   $tolerance number 1e-6: norms differ if they are further apart than this part of the largest
-- Columns: run, name, steps (at which it differs), first_step (the first of them, the global one), spread (between the
--   largest norm and the smallest, as a part of the largest; the widest of all steps).
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
