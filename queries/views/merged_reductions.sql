-- View `merged_reductions`: the statistics of a tensor whose parts (shards) several workers have saved at one step.
-- Columns: run, name, mode, mode_step, global_step (the first one, if workers are not in step), workers (the number with a
--   part that has elements), elements, and statistics of all parts together: min, max, mean, std, variance, sum,
--   l1, l2, rms, abs_mean, abs_min, abs_max, skewness, kurtosis and the counts. A statistic is null if a part lacks what it is computed from; skewness also needs mean and std of each
--   part, and kurtosis also skewness. Quantiles p01, p05, p25, p50, p75, p95 and p99 of the sketches of all parts.
-- Moments are merged by shifting each part's moments to the common mean (Pebay, SAND2008-6212). Means are measured from the
-- least one, so that equal ones have no distance.

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
        -- The mean of equal elements is rounded, by an amount that depends on their number.
        case when "min" = "max" then "min" else coalesce("mean", "sum" / n) end as center,
        coalesce("variance", "std" * "std") as spread,
        coalesce("l1", "abs_l1", "abs_sum", "abs_mean" * n) as magnitude,
        coalesce("l2", "abs_l2", sqrt(n) * "rms", sqrt(n * (coalesce("variance", "std" * "std") + "mean" * "mean"))) as norm
    from sized
    where nbytes > 0
),
based as (
    select
        *,
        center - min(center) over (partition by run, name, mode, mode_step) as above,
        max(norm) over (partition by run, name, mode, mode_step) as longest
    from parts
),
shifted as (
    select
        *,
        above - sum(n * above) over (partition by run, name, mode, mode_step)
            / sum(n) over (partition by run, name, mode, mode_step) as off,
        case when longest = 0 or isinf(longest) then 1.0 else norm / longest end as share,
        -- NaN if all elements of a part are equal, whose moments are 0.
        case when isnan("skewness") and not isnan(spread) then 0.0 else "skewness" * spread * sqrt(spread) end as third,
        case when isnan("kurtosis") and not isnan(spread) then 0.0 else "kurtosis" * spread * spread end as fourth
    from based
),
merged as (
    select
        run,
        name,
        mode,
        mode_step,
        min(global_step) as global_step,
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
        case when count(norm) = count(*) then max(longest) * sqrt(sum(share * share)) end as norm,
        case
            when count("abs_min") < count(*) then null
            when isnan(max("abs_min")) then max("abs_min")
            else min("abs_min")
        end as abs_least,
        case when count(coalesce("abs_max", greatest(abs("min"), abs("max")))) = count(*)
            then max(coalesce("abs_max", greatest(abs("min"), abs("max")))) end as abs_greatest,
        case when count(n * spread) = count(*) then sum(n * (spread + off * off)) end as second,
        sum(n * center * center) as center_square,
        case when count(n * third) = count(*) then sum(n * (third + 3 * off * spread + off * off * off)) end as third,
        case when count(n * (fourth + third)) = count(*)
            then sum(n * (fourth + 4 * off * third + 6 * off * off * spread + off * off * off * off)) end as fourth,
        case when count("nan_count") = count(*) then sum("nan_count") end as nan_count,
        case when count("inf_count") = count(*) then sum("inf_count") end as inf_count,
        case when count("zero_count") = count(*) then sum("zero_count") end as zero_count,
        case when count("subnormal_count") = count(*) then sum("subnormal_count") end as subnormal_count,
        case when count("saturated_count") = count(*) then sum("saturated_count") end as saturated_count,
        count(sketch) = count(*) as has_sketch
    from shifted
    group by run, name, mode, mode_step
),
positions as (
    select
        run,
        name,
        mode,
        mode_step,
        sketch."values" as rounded,
        sketch.counts as counts,
        unnest(generate_series(1, array_length(sketch."values"))) as position
    from (select * from catalogue.tensors where array_length(sketch."values") > 0) as with_sketch
),
counted as (
    select
        run,
        name,
        mode,
        mode_step,
        rounded[cast(position as integer)] as value,
        sum(counts[cast(position as integer)]) as number
    from positions
    group by run, name, mode, mode_step, rounded[cast(position as integer)]
),
ranked as (
    select
        *,
        sum(number) over (
            partition by run, name, mode, mode_step order by value rows between unbounded preceding and current row
        ) as below,
        sum(number) over (partition by run, name, mode, mode_step) as n
    from counted
),
quantiles as (
    select
        run,
        name,
        mode,
        mode_step,
        isnan(max(value)) as is_nan,
        min(case when below >= 0.01e0 * n then value end) as p01,
        min(case when below >= 0.05e0 * n then value end) as p05,
        min(case when below >= 0.25e0 * n then value end) as p25,
        min(case when below >= 0.5e0 * n then value end) as p50,
        min(case when below >= 0.75e0 * n then value end) as p75,
        min(case when below >= 0.95e0 * n then value end) as p95,
        min(case when below >= 0.99e0 * n then value end) as p99
    from ranked
    group by run, name, mode, mode_step
)
select
    merged.run,
    merged.name,
    merged.mode,
    merged.mode_step,
    merged.global_step,
    workers,
    cast(elements as bigint) as elements,
    least as "min",
    greatest as "max",
    total / elements as "mean",
    sqrt(second / elements) as "std",
    second / elements as "variance",
    total as "sum",
    magnitude as "l1",
    norm as "l2",
    norm / sqrt(elements) as "rms",
    magnitude / elements as "abs_mean",
    abs_least as "abs_min",
    abs_greatest as "abs_max",
    case
        when second > 1e-30 * center_square then (third / elements) / (second / elements * sqrt(second / elements))
        when third is not null then cast('nan' as double)
    end as "skewness",
    case
        when second > 1e-30 * center_square then (fourth / elements) / (second / elements * (second / elements))
        when fourth is not null then cast('nan' as double)
    end as "kurtosis",
    nan_count,
    inf_count,
    zero_count,
    subnormal_count,
    saturated_count,
    case when has_sketch then case when is_nan then cast('nan' as double) else p01 end end as p01,
    case when has_sketch then case when is_nan then cast('nan' as double) else p05 end end as p05,
    case when has_sketch then case when is_nan then cast('nan' as double) else p25 end end as p25,
    case when has_sketch then case when is_nan then cast('nan' as double) else p50 end end as p50,
    case when has_sketch then case when is_nan then cast('nan' as double) else p75 end end as p75,
    case when has_sketch then case when is_nan then cast('nan' as double) else p95 end end as p95,
    case when has_sketch then case when is_nan then cast('nan' as double) else p99 end end as p99
from merged
left join quantiles
    on merged.run = quantiles.run
    and merged.name = quantiles.name
    and merged.mode = quantiles.mode
    and merged.mode_step = quantiles.mode_step
