/** Color scales for color-blind people. */

// Anchors of viridis (Smith and van der Walt, CC0), evenly spaced: brighter is more.
const SEQUENTIAL = "440154 472d7b 3b528b 2c728e 21918c 28ae80 5ec962 addc30 fde725".split(" ");
// Blue is below, orange above, without red or green; lightness is symmetric.
const DIVERGING_LIGHT = "08306b 2171b5 6baed6 c6dbef f4f4f2 fdd0a2 fd8d3c d94801 7f2704".split(" ");
const DIVERGING_DARK = "c6e2ff 6baed6 2f7fc1 1f4468 26282c 6b3a17 c25a10 fd9a4e ffe0c2".split(" ");

/** Colors of lines (Okabe and Ito) that color-blind people tell apart; brighter on a dark ground. */
const LINES = "#0072b2 #e69f00 #009e73 #cc79a7 #56b4e9 #d55e00 #8f7f00 #7b6fd0".split(" ");
const LINES_DARK = "#3d9be9 #e69f00 #19b88a #dd8fbb #9bd8ff #f07a32 #b8a52e #a196f0".split(" ");
export const NUM_COLORS = LINES.length;

/** @param {number} color */
export const lineColor = (color) => (isDark() ? LINES_DARK : LINES)[color % NUM_COLORS];
const DASHES = [[], [10, 4], [3, 3], [10, 3, 3, 3]];

/** Return the dashes of a line: none for the first eight. @param {number} color */
export const dashOf = (color) => DASHES[Math.floor(color / NUM_COLORS) % DASHES.length];

const INKS = "text quiet line hole ground mark accent".split(" ");
/** Return the colors of the style sheet by name. @returns {Record<string, string>} */
export function inks() {
  const style = getComputedStyle(document.body);
  return Object.fromEntries(INKS.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/** Give a canvas its size in CSS pixels, and return what draws on it in them. @param {HTMLCanvasElement} canvas @param {number} width @param {number} height */
export function sized(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
  canvas.style.cssText = `width: ${width}px; height: ${height}px`;
  const context = penOf(canvas);
  context.scale(ratio, ratio);
  context.font = `${innerWidth >= 2200 ? 13 : 11}px system-ui, sans-serif`;
  return context;
}

/** @param {HTMLCanvasElement} canvas */
export const penOf = (canvas) => /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));

/** What is not a finite number, in every scale. */
export const NOT_FINITE = "#e6007e";

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Return a table of 256 pixels, as a little-endian Uint32 of ImageData holds them. @param {ScaleKind} kind */
export function lookup(kind) {
  const anchors = kind === "sequential" ? SEQUENTIAL : isDark() ? DIVERGING_DARK : DIVERGING_LIGHT;
  const channels = anchors.map(channelsOf);
  return Uint32Array.from({ length: 256 }, (_, i) => {
    const place = (i / 255) * (anchors.length - 1);
    const at = Math.min(Math.floor(place), anchors.length - 2);
    return pixel(channels[at].map((low, c) => Math.round(low + (channels[at + 1][c] - low) * (place - at))));
  });
}

/** @param {number[]} rgb */
const pixel = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;

/** Return the pixel of a color "#rrggbb". @param {string} hex */
export const pixelOf = (hex) => pixel(channelsOf(hex));

/** @param {string} hex */
const channelsOf = (hex) => [-6, -4, -2].map((at) => parseInt(hex.slice(at).slice(0, 2), 16));

/** Return the color "rgb(…)" of a pixel. @param {number} value */
export const css = (value) => `rgb(${value & 255} ${(value >> 8) & 255} ${(value >> 16) & 255})`;

/** Return the place of a finite value in a lookup table. @param {Scale} scale @param {number} value */
export function indexOf(scale, value) {
  if (scale.neutral && Math.abs(value) < scale.neutral) return 128;
  const map = (/** @type {number} */ x) => (scale.log ? Math.log(Math.max(x, scale.low)) : x);
  const [low, high] = [map(scale.low), map(scale.high)];
  if (!(high > low)) return 128;
  return Math.max(0, Math.min(255, Math.round(((map(value) / 2 - low / 2) / (high / 2 - low / 2)) * 255))); // half: the whole may be infinite
}

/** Return the scale of values: logarithmic if positive over more than two decades. @param {ArrayLike<number>} values @param {boolean} [diverging] the middle is 0, whatever the values @returns {Scale} */
export function scaleOf(values, diverging = false) {
  const finite = Float64Array.from(/** @type {any} */ (values)).filter(Number.isFinite).sort();
  if (!finite.length) return { kind: "sequential", low: 0, high: 1, log: false };
  // The outermost 0.5 % take the colors at the ends.
  const at = (/** @type {number} */ q) => finite[Math.min(finite.length - 1, Math.floor(q * finite.length))];
  let [low, high] = [at(0.005), at(0.995)];
  if (low === high) [low, high] = [finite[0], finite[finite.length - 1]];
  if (diverging || (low < 0 && high > 0)) {
    const reach = Math.max(-low, high) || 1;
    return { kind: "diverging", low: -reach, high: reach, log: false };
  }
  const positive = finite.find((value) => value > 0) ?? 0;
  const log = low >= 0 && positive > 0 && high / Math.max(low, positive) > 100;
  return { kind: "sequential", low: log ? Math.max(low, positive, high * 1e-7) : low, high, log }; // seven decades below the top are nothing
}
