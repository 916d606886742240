-- How large are each parameter, its gradient and its update, step by step?
-- Parameters:
--   $runs text '%': a LIKE pattern of runs
--   $names text '%': a LIKE pattern of parameters
-- Columns: run, name (of the parameter), worker, mode, mode_step, weight_norm, gradient_norm, update_ratio (the norm of the
--   update divided by that of the parameter; null if the hook has no optimizer).
-- Needs: l2 of names $names.

with saved as (
    select run, name, worker, mode, mode_step, global_step, parameter, scalar, {l2} as norm
    from tensors
    where run like $runs
),
gradients as (
    select
        run, worker, global_step, parameter,
        coalesce(max(case when name not like 'optimizer%' then norm end), max(norm)) as norm
    from saved
    where parameter is not null
    group by run, worker, global_step, parameter
)
select
    weights.run as run, weights.name as name, weights.worker as worker, weights.mode as mode,
    weights.mode_step as mode_step, weights.norm as weight_norm, gradients.norm as gradient_norm,
    updates.scalar as update_ratio
from saved as weights
left join gradients
    on gradients.run = weights.run
    and gradients.worker = weights.worker
    and gradients.global_step = weights.global_step
    and gradients.parameter = weights.name
left join saved as updates
    on updates.run = weights.run
    and updates.worker = weights.worker
    and updates.global_step = weights.global_step
    and updates.name = concat('update_ratio/', weights.name)
where weights.name like $names and weights.norm is not null and weights.parameter is null
    and (gradients.norm is not null or updates.scalar is not null)
order by 1, 2, 3, 4, 5
