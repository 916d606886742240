/** Smoothing of a curve. */

/** Return the exponential moving average, its start corrected for bias. Values that are not finite leave gaps. @param {ArrayLike<number | null>} values @param {number} weight of the past, 0 to 1 */
export function smooth(values, weight) {
  let [average, norm] = [0, 0];
  return Array.from(values, (value) => {
    if (value === null || !Number.isFinite(value)) return null;
    average = weight * average + (1 - weight) * value;
    norm = weight * norm + (1 - weight);
    return average / norm;
  });
}
