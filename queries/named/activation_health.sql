-- How large are the outputs of each layer, how heavy are their tails, and how much of them is zero, step by step?
-- Parameters:
--   $runs text '%': a LIKE pattern of runs
--   $names text '%output%': a LIKE pattern of tensors
-- Columns: run, name, worker, mode, mode_step, rms, kurtosis, dead_fraction (zeros to elements).
-- Needs: zero_count of names $names.

select
    run, name, worker, mode, mode_step, {rms} as rms, {kurtosis} as kurtosis, {zero_count} / {size} as dead_fraction
from tensors
where run like $runs and name like $names and {zero_count} is not null
order by run, name, worker, mode, mode_step
