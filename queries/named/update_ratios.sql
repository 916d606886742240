-- How large are gradients compared with the weights that they change?
-- Parameters:
--   $runs text '%': a LIKE pattern of runs
--   $prefix text 'gradient/': the prefix of a gradient's name before its weight's, for runs whose
--     index does not link them, such as imports
-- Columns: run, name (of the weight), worker, mode, mode_step, weight_norm, gradient_norm, ratio (gradient to weight).
-- Needs: l2 of weights or biases, l2 of gradients.

with norms as (
    select run, name, worker, mode, mode_step, global_step, parameter, {l2} as norm
    from tensors
    where run like $runs
),
gradients as (
    select run, worker, global_step, norm, parameter as weight
    from norms
    where parameter is not null and norm is not null
    union all
    select run, worker, global_step, norm, substr(name, length($prefix) + 1) as weight
    from norms
    where parameter is null and norm is not null and substr(name, 1, length($prefix)) = $prefix
)
select
    weights.run as run, weights.name as name, weights.worker as worker, weights.mode as mode,
    weights.mode_step as mode_step, weights.norm as weight_norm, gradients.norm as gradient_norm,
    gradients.norm / weights.norm as ratio
from norms as weights
join gradients
    on gradients.run = weights.run
    and gradients.worker = weights.worker
    and gradients.global_step = weights.global_step
    and gradients.weight = weights.name
where weights.norm > 0
order by 1, 2, 3, 4, 5
