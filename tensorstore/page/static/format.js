/** Numbers, times and names as people read them. */

/** Control characters, and marks that change the direction or the place of text. */
const UNPRINTABLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/**
 * Return a name of a run with unprintable characters as escapes, such as `\u202e`.
 * @param {string} text
 */
export function printable(text) {
  return String(text).replace(UNPRINTABLE, (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/**
 * Return a number with four significant digits; null becomes "–".
 * @param {number | null | undefined} value
 */
export function number(value) {
  if (value === null || value === undefined) return "–";
  if (Number.isNaN(value)) return "NaN";
  if (value === Infinity) return "inf";
  if (value === -Infinity) return "-inf";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return String(value);
  if (size >= 1e5 || size < 1e-3) return value.toExponential(2).replace(/\.?0*e\+?/, "e");
  return String(Number(value.toPrecision(4)));
}

/**
 * Return a count with thousands separated: 12,345.
 * @param {number} value
 */
export function count(value) {
  return Math.round(value).toLocaleString("en-US");
}

/**
 * Return a count and its noun: "1 step", "2 steps".
 * @param {number} value
 * @param {string} noun
 */
export function counted(value, noun) {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/**
 * Return a size as kB, MB, GB.
 * @param {number | null | undefined} nbytes
 */
export function size(nbytes) {
  if (nbytes === null || nbytes === undefined) return "–";
  let value = nbytes;
  for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
    if (value < 1000 || unit === "TB") return `${unit === "B" ? value : value.toFixed(value < 10 ? 1 : 0)} ${unit}`;
    value /= 1000;
  }
  return "";
}

/**
 * Return a time of day, with the date if it is not today's.
 * @param {number | null | undefined} ms milliseconds since 1970
 */
export function time(ms) {
  if (ms === null || ms === undefined) return "–";
  const date = new Date(ms);
  const today = date.toDateString() === new Date().toDateString();
  return today ? date.toLocaleTimeString() : `${date.toISOString().slice(0, 10)} ${date.toLocaleTimeString()}`;
}

/**
 * Return a duration: "3 s", "2 min 5 s", "4 h 3 min".
 * @param {number} seconds
 */
export function duration(seconds) {
  if (seconds < 10) return `${Number(seconds.toPrecision(2))} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/**
 * Return a name that fits, with its middle left out: its end tells layers apart, its beginning tells kinds.
 * @param {string} name
 * @param {number} characters
 */
export function shorten(name, characters) {
  const shown = printable(name);
  if (shown.length <= characters) return shown;
  const front = Math.max(1, Math.floor(characters / 3));
  return `${shown.slice(0, front)}…${shown.slice(shown.length - (characters - front - 1))}`;
}

/**
 * Return round numbers between two bounds, for the marks of an axis.
 * @param {number} from
 * @param {number} to
 * @param {number} most how many at most
 * @param {number} [least] the smallest distance, 1 for steps
 * @returns {number[]}
 */
export function ticks(from, to, most, least = 0) {
  if (!(to > from) || most < 1) return [];
  const rough = Math.max((to - from) / most, least);
  const power = 10 ** Math.floor(Math.log10(rough));
  const distance = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough * 0.999) ?? rough;
  const first = Math.ceil(from / distance);
  // Counted: where numbers are near each other, a sum may stay what it was.
  return Array.from({ length: most + 1 }, (_, i) => (first + i) * distance).filter((mark) => mark <= to);
}
