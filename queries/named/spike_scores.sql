-- Which share of the losses are spikes, and which one is the worst?
-- Parameters:
--   $runs text '%': names of runs, as LIKE has them
--   $collection text 'losses': the collection of the scalars
--   $deviations number 7: a spike is so many standard deviations away from the mean of the last 1000
--   $before integer 20: so many values must be known before one is compared
-- Columns: run, name, worker, mode, compared (values), spikes, spike_score (spikes to compared), worst_deviations (in
--   standard deviations), worst_step (of the mode).
-- Values that are not finite are passed over. Equal values before have no deviation: a thousandth of their size is used.

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
