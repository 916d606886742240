-- View `merged_reductions`: the statistics of a tensor whose parts several workers have saved at one step, as shards.
-- Columns: run, name, mode, mode_step, global_step, workers (that have a part with elements), elements, and statistics of
--   all parts together: min, max, mean, std, variance, sum, l1, l2, rms, abs_mean, abs_min, abs_max, skewness, kurtosis and
--   the counts. A statistic is null if a part lacks what it is computed from; skewness also needs mean and std of each
--   part, and kurtosis also skewness.
-- Moments are merged by shifting each part's to the common mean (Pebay, SAND2008-6212).

with sized as (
    select
        *,
        nbytes / case
            when dtype in ('bool', 'int8', 'uint8', 'float8_e4m3fn', 'float8_e4m3fnuz', 'float8_e5m2', 'float8_e5m2fnuz')
                then 1
            when dtype in ('int16', 'uint16', 'float16', 'bfloat16') then 2
            when dtype in ('int32', 'uint32', 'float32') then 4
            when dtype in ('int64', 'uint64', 'float64') then 8
        end as n
    from catalogue.tensors
),
parts as (
    select
        *,
        coalesce("mean", "sum" / n) as center,
        coalesce("variance", "std" * "std") as spread,
        coalesce("l1", "abs_l1", "abs_sum", "abs_mean" * n) as magnitude
    from sized
    where nbytes > 0
),
shifted as (
    select
        *,
        center - sum(n * center) over (partition by run, name, mode, global_step)
            / sum(n) over (partition by run, name, mode, global_step) as off,
        coalesce("l2" * "l2", "abs_l2" * "abs_l2", n * "rms" * "rms", n * (spread + center * center)) as squares,
        -- NaN where all elements of a part are equal: its moments are 0.
        case when isnan("skewness") and not isnan(spread) then 0.0 else "skewness" * spread * sqrt(spread) end as third,
        case when isnan("kurtosis") and not isnan(spread) then 0.0 else "kurtosis" * spread * spread end as fourth
    from parts
),
merged as (
    select
        run,
        name,
        mode,
        mode_step,
        global_step,
        count(*) as workers,
        case when count(n) = count(*) then sum(n) end as elements,
        case
            when count("min") < count(*) then null
            when isnan(max("min")) then max("min")
            else min("min")
        end as least,
        case when count("max") = count(*) then max("max") end as greatest,
        case when count(n * center) = count(*) then sum(n * center) end as total,
        case when count(magnitude) = count(*) then sum(magnitude) end as magnitude,
        case when count(squares) = count(*) then sum(squares) end as squares,
        case
            when count("abs_min") < count(*) then null
            when isnan(max("abs_min")) then max("abs_min")
            else min("abs_min")
        end as abs_least,
        case when count(coalesce("abs_max", greatest(abs("min"), abs("max")))) = count(*)
            then max(coalesce("abs_max", greatest(abs("min"), abs("max")))) end as abs_greatest,
        case when count(n * spread) = count(*) then sum(n * (spread + off * off)) end as second,
        case when count(n * third) = count(*) then sum(n * (third + 3 * off * spread + off * off * off)) end as third,
        case when count(n * (fourth + third)) = count(*)
            then sum(n * (fourth + 4 * off * third + 6 * off * off * spread + off * off * off * off)) end as fourth,
        case when count("nan_count") = count(*) then sum("nan_count") end as nan_count,
        case when count("inf_count") = count(*) then sum("inf_count") end as inf_count,
        case when count("zero_count") = count(*) then sum("zero_count") end as zero_count,
        case when count("subnormal_count") = count(*) then sum("subnormal_count") end as subnormal_count,
        case when count("saturated_count") = count(*) then sum("saturated_count") end as saturated_count
    from shifted
    group by run, name, mode, mode_step, global_step
)
select
    run,
    name,
    mode,
    mode_step,
    global_step,
    workers,
    cast(elements as bigint) as elements,
    least as "min",
    greatest as "max",
    total / elements as "mean",
    sqrt(second / elements) as "std",
    second / elements as "variance",
    total as "sum",
    magnitude as "l1",
    sqrt(squares) as "l2",
    sqrt(squares / elements) as "rms",
    magnitude / elements as "abs_mean",
    abs_least as "abs_min",
    abs_greatest as "abs_max",
    case when second > 0 then (third / elements) / (second / elements * sqrt(second / elements)) end as "skewness",
    case when second > 0 then (fourth / elements) / (second / elements * (second / elements)) end as "kurtosis",
    nan_count,
    inf_count,
    zero_count,
    subnormal_count,
    saturated_count
from merged
