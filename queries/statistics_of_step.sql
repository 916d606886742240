-- What does the index say of all tensors of one step?
-- Parameters: $paths (index files), $step (global).
-- Columns: those of SavedTensor; the statistics as one list, in the order of the index's columns.

select
    name, mode, mode_step, global_step, worker, dtype, shape, nbytes, scalar, chunk, "offset", row_group, "row", parts,
    [
        "min", "max", "mean", "median", "std", "variance", "sum", "prod", "l1", "l2", "abs_min", "abs_max",
        "abs_mean", "abs_median", "abs_std", "abs_variance", "abs_sum", "abs_prod", "abs_l1", "abs_l2",
        "nan_count", "inf_count", "zero_count"
    ] as statistics,
    histogram
from read_parquet($paths, hive_partitioning = false)
where global_step = $step
