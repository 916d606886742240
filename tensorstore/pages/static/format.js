/** Numbers, times and names as people read them. */

/** Control characters but line feeds, and marks of the direction or place of text. */
const UNPRINTABLE = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

// Kept: making one takes as long as a hundred of its texts.
const COUNTS = new Intl.NumberFormat("en-US");
const DATES = new Intl.DateTimeFormat("sv", { dateStyle: "short", timeStyle: "medium" });

/** Return a text with unprintable characters as escapes, such as `\u202e`. @param {string} text */
export const printable = (text) => String(text).replace(UNPRINTABLE, (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** Return a number with four significant digits; null becomes "–". @param {number | null | undefined} value */
export function number(value) {
  if (value == null) return "–";
  if (!Number.isFinite(value)) return String(value).replace("Infinity", "inf");
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return String(value);
  if (size >= 1e5 || size < 1e-3) return exponential(value);
  return String(Number(value.toPrecision(4)));
}

/** Return the marks of an axis in one notation; null is no mark. @param {(number | null)[]} marks */
export function notedAlike(marks) {
  const texts = marks.map((mark) => mark === null ? "" : number(mark));
  return texts.some((text) => text.includes("e")) ? marks.map((mark, i) => mark && !/^-?10{0,2}$/.test(texts[i]) ? exponential(mark) : texts[i]) : texts;
}

/** @param {number} value */
const exponential = (value) => value.toExponential(2).replace(/\.?0*e\+?/, "e").replace(/e0$/, "");

/** Return whether a text has a part, in upper or lower case. @param {string} text @param {string} [part] */
export const contains = (text, part = "") => text.toLowerCase().includes(part.toLowerCase());

/** Return a count with thousands separated: 12,345. @param {number} value */
export const count = (value) => COUNTS.format(Math.round(value));

/** Return a count and its noun: "1 step", "2 steps". @param {number} value @param {string} noun */
export const counted = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

/** Return how many steps were saved: "45 of 451 steps saved". @param {Run} run */
export const savedSteps = ({ steps, begun }) => begun > steps ? `${count(steps)} of ${count(begun)} steps saved` : counted(steps, "step");

/** Return a size as kB, MB, GB. @param {number | null | undefined} nbytes */
export function size(nbytes) {
  if (nbytes == null) return "–";
  const power = Math.min(4, Math.floor(Math.log10(nbytes || 1) / 3));
  const value = nbytes / 1000 ** power;
  return `${value.toFixed(power && value < 10 ? 1 : 0)} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}

/** Return a value of metadata or of a query as text, a whole number with all its digits. @param {any} value */
export function textOf(value) {
  if (value == null) return "";
  if (typeof value === "number") return Number.isSafeInteger(value) ? String(value) : number(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Return items by a key, in the order of their first members. @template T @param {Iterable<T>} items @param {(item: T) => string} keyOf @returns {Map<string, T[]>} */
export function grouped(items, keyOf) {
  const groups = new Map();
  for (const item of items) {
    const key = keyOf(item);
    groups.get(key)?.push(item) ?? groups.set(key, [item]);
  }
  return groups;
}

/** Return a date and a time to the minute: "2026-11-27 14:05". @param {number | null | undefined} ms milliseconds since 1970 @param {number} [length] 19 for seconds */
export function date(ms, length = 16) {
  if (ms == null) return "–";
  return DATES.format(ms).slice(0, length);
}

/** Return a duration: "3 s", "2 min 5 s", "4 h 3 min". @param {number | null} seconds */
export function duration(seconds) {
  if (seconds === null) return "–";
  if (seconds < 10) return `${Number(seconds.toPrecision(2))} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** Order texts as people do: "run-2" before "run-10". */
export const inOrder = new Intl.Collator(undefined, { numeric: true }).compare;

/** Return what all names begin with after any slash, up to the end of a part: "Net_", "model.layers.". @param {string[]} names */
export function commonPrefix(names) {
  const rest = names.map((name) => name.slice(name.lastIndexOf("/") + 1));
  if (rest.length < 2) return "";
  const [first, last] = [rest.sort()[0], rest[rest.length - 1]];
  let at = 0;
  while (at < first.length && first[at] === last[at]) at++;
  return first.slice(0, at).replace(/[^._]*$/, "");
}

/** Return a name without the prefix that all have. @param {string} name @param {string} prefix of `commonPrefix` */
export function withoutPrefix(name, prefix) {
  const at = name.lastIndexOf("/") + 1;
  return prefix && name.startsWith(prefix, at) && name.length > at + prefix.length ? name.slice(0, at) + name.slice(at + prefix.length) : name;
}

/** How far keys move in a row. @type {Record<string, number>} */
export const MOVES = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };

/** Return a place inside a length. @param {number} at @param {number} length */
export const within = (at, length) => Math.max(0, Math.min(length - 1, at));

/** Return the first whole number below `high` from which on something holds, else `high`. @param {number} low @param {number} high @param {(at: number) => boolean} holds */
export function firstOf(low, high, holds) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Return round numbers between two bounds, for the marks of an axis. @param {number} from @param {number} to @param {number} most how many at most @param {number} [least] the smallest distance, 1 for steps */
export function ticks(from, to, most, least = 0) {
  if (!(to > from) || most < 1) return to === from ? [to] : [];
  const rough = Math.max((to - from) / most, least);
  const power = 10 ** Math.floor(Math.log10(rough));
  const distance = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough * 0.999) ?? rough;
  const first = Math.ceil(from / distance);
  // Counted: where numbers are near each other, a sum may stay what it was.
  return Array.from({ length: most + 1 }, (_, i) => (first + i) * distance).filter((mark) => mark <= to);
}
