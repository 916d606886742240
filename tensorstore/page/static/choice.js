/** What the state chooses: a run, a statistic, a mode, a worker. */

/** What each statistic says, for people who see its name for the first time. */
export const STATISTICS = /** @type {Record<string, string>} */ ({
  l2: "L2 norm", l1: "L1 norm", mean: "mean", std: "standard deviation", variance: "variance", min: "minimum", max: "maximum",
  abs_mean: "mean |x|", abs_max: "largest |x|", abs_min: "smallest |x|", abs_std: "std of |x|", abs_l2: "L2 norm of |x|", abs_l1: "L1 norm of |x|",
  abs_variance: "variance of |x|", nan_count: "NaN count", inf_count: "infinity count", zero_count: "zero count", rms: "RMS", subnormal_count: "subnormal count", saturated_count: "saturated count",
  zero_fraction: "share of zeros", update_ratio: "update / parameter", gradient_ratio: "gradient / parameter", digest_changed: "changed since the step before", value: "value of scalars",
});

/**
 * Return whether the state names a run that is not served.
 * @param {Info} info
 * @param {State} now
 */
export function isStrange(info, now) {
  return Boolean(now.run) && !info.runs.some((run) => run.name === now.run);
}

/**
 * Return the run that the state names, by default the first.
 * @param {Info} info
 * @param {State} now
 */
export function chosenRun(info, now) {
  return info.runs.find((run) => run.name === now.run) ?? info.runs[0];
}

/**
 * Return the statistic, mode and worker that the state names, or the defaults.
 * @param {Run} run
 * @param {State} now
 */
export function choose(run, now) {
  const statistic = now.stat && run.statistics.includes(now.stat) ? now.stat
    : ["l2", "abs_mean", "std", "mean"].find((each) => run.statistics.includes(each)) ?? run.statistics[0] ?? "";
  const mode = run.modes.find((each) => each.mode === now.mode)?.mode ?? run.modes[0]?.mode ?? "";
  return { statistic, mode, worker: run.workers.includes(now.worker) ? now.worker : "" };
}
