-- View `reductions`: every saved statistic, one row each.
-- Columns: run, name, mode, mode_step, global_step, worker, reduction (min, abs_mean, l2, nan_count, …), value.

select run, name, mode, mode_step, global_step, worker, reduction, value
from catalogue.tensors
unpivot (
    value for reduction in (
        "min", "max", "mean", "median", "std", "variance", "sum", "prod", "l1", "l2", "abs_min", "abs_max",
        "abs_mean", "abs_median", "abs_std", "abs_variance", "abs_sum", "abs_prod", "abs_l1", "abs_l2",
        "nan_count", "inf_count", "zero_count", "rms", "skewness", "kurtosis", "subnormal_count", "saturated_count"
    )
)
