-- How large are gradients beside the weights that they change?
-- Parameters:
--   $runs text '%': names of runs, as LIKE has them
--   $prefix text 'gradient/': what a gradient's name has before that of its weight
-- Columns: run, name (of the weight), worker, mode, mode_step, weight_norm, gradient_norm, ratio (gradient to weight).

select
    weights.run as run, weights.name as name, weights.worker as worker, weights.mode as mode,
    weights.mode_step as mode_step, weights.l2 as weight_norm, gradients.l2 as gradient_norm,
    gradients.l2 / weights.l2 as ratio
from tensors as weights
join tensors as gradients
    on gradients.run = weights.run
    and gradients.worker = weights.worker
    and gradients.global_step = weights.global_step
    and gradients.name = $prefix || weights.name
where weights.run like $runs and weights.l2 > 0 and gradients.l2 is not null
order by 1, 2, 3, 4, 5
