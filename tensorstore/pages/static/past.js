/** How unusual each value of a series is. */

import { firstOf } from "./format.js";

const LEAST = 5; // values that make a past
const UNSURE = 8; // few values have an uncertain spread: of usual values, 4 % instead of 17 % are beyond 3 deviations
const LARGEST = 99;

/** Return how far each value is from the median of all earlier ones, in interquartile ranges / 1.349, less with few of them. Positive values are compared by logarithms: halving is as far as doubling. @param {ArrayLike<number>} values NaN where there is none @returns {Float64Array} 0 without a past */
export function robustZ(values) {
  const result = new Float64Array(values.length).fill(NaN);
  let positive = true;
  for (let i = 0; i < values.length; i++) if (values[i] <= 0) positive = false;
  /** @type {number[]} */
  const past = [];
  for (let i = 0; i < values.length; i++) {
    if (!Number.isFinite(values[i])) continue;
    const value = positive ? Math.log10(values[i]) : values[i] / 8; // else a distance may be infinite
    result[i] = past.length < LEAST ? 0 : distance(past, value, positive);
    past.splice(firstOf(0, past.length, (at) => past[at] >= value), 0, value);
  }
  return result;
}

/** @param {number[]} past ascending @param {number} value @param {boolean} logarithm whether both are logarithms */
function distance(past, value, logarithm) {
  const at = (/** @type {number} */ q) => past[Math.round(q * (past.length - 1))];
  const median = at(0.5);
  // A series that hardly moved has no spread; 1 % of its size counts as none.
  const least = logarithm ? Math.log10(1.01) : Math.max(Math.abs(median) * 0.01, 1e-13);
  const z = (value - median) / Math.max((at(0.75) - at(0.25)) / 1.349, least);
  return Math.max(-LARGEST, Math.min(LARGEST, z * past.length / (past.length + UNSURE)));
}
