-- Which share of the losses are spikes, and which one is the worst?
-- Parameters:
--   $runs text '%': a LIKE pattern of runs
--   $collection text 'losses': the collection of the scalars
--   $deviations number 7: the least distance of a spike from the mean of the last 1000 values, in standard deviations
--   $before integer 20: the number of values before the first comparison
-- Columns: run, name, worker, mode, compared (values), spikes, spike_score (spikes to compared), worst_deviations (in
--   standard deviations), worst_step (of the mode).
-- Values that are not finite are skipped. If all earlier values are equal, a thousandth of their size is the deviation.

with losses as (
    select
        run, name, worker, mode, mode_step, value,
        avg(value) over (
            partition by run, name, worker, mode order by mode_step nulls first rows between 1000 preceding and 1 preceding
        ) as mean_before,
        stddev_samp(value) over (
            partition by run, name, worker, mode order by mode_step nulls first rows between 1000 preceding and 1 preceding
        ) as deviation_before,
        count(value) over (
            partition by run, name, worker, mode order by mode_step nulls first rows between 1000 preceding and 1 preceding
        ) as values_before
    from scalars
    where run like $runs and list_contains(collections, $collection)
        and value between -1.7976931348623157e308 and 1.7976931348623157e308
),
compared as (
    select
        run, name, worker, mode, mode_step,
        abs(value - mean_before) / greatest(deviation_before, 1e-3 * abs(mean_before), 1e-12) as deviations
    from losses
    where values_before >= $before and values_before >= 2
),
ranked as (
    select
        run, name, worker, mode, mode_step, deviations,
        row_number() over (
            partition by run, name, worker, mode order by deviations desc nulls last, mode_step nulls last
        ) as place
    from compared
)
select
    run, name, worker, mode, count(*) as compared, sum(case when deviations >= $deviations then 1 else 0 end) as spikes,
    cast(sum(case when deviations >= $deviations then 1 else 0 end) as double) / count(*) as spike_score,
    max(deviations) as worst_deviations, max(case when place = 1 then mode_step end) as worst_step
from ranked
group by run, name, worker, mode
order by run, name, worker, mode
