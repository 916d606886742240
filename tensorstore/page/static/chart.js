/** Line charts by uPlot, with the colours of the page. */

import { LINES } from "./colors.js";
import { h } from "./dom.js";
import { count, number, printable, time } from "./format.js";

/**
 * @typedef {object} Line
 * @property {string} label
 * @property {ArrayLike<number | null | undefined>} values null breaks the line; it goes on across undefined
 * @property {number} [color] which of the colours of lines
 * @property {number} [width]
 * @property {number} [alpha] 0 to 1
 * @property {boolean} [quiet] without a place in the legend's values
 * @property {boolean} [points] with a point at each value
 * @property {boolean} [dash] a dashed line
 */
/** @typedef {"auto" | "linear" | "log"} Axis auto: linear, but logarithmic where a linear one would hide all but the largest */
/**
 * @typedef {object} Chart
 * @property {ArrayLike<number>} x ascending
 * @property {Line[]} lines
 * @property {[number, number, number][]} [bands] upper line, lower line, colour
 * @property {boolean} [logX]
 * @property {Axis} [logY]
 * @property {"step" | "time" | "number"} [unit] of x
 * @property {number} [height]
 * @property {number | null} [mark] an x with a line across
 * @property {(x: number) => void} [onclick]
 * @property {(from: number, to: number) => void} [onrange] a range of x was dragged
 */

/** What a reader can choose for the y axis. */
export const AXES = [{ value: "", text: "automatic" }, { value: "0", text: "linear" }, { value: "1", text: "logarithmic" }];

/**
 * Return the y axis that the state names.
 * @param {State} now
 * @returns {Axis}
 */
export function axisOf(now) {
  return now.logy === "1" ? "log" : now.logy === "0" ? "linear" : "auto";
}

/**
 * Return uPlot's scale of y. Values of both signs that span many decades get an inverse hyperbolic sine, which is linear
 * around zero.
 * @param {Chart} chart
 */
function scaleY({ logY = "linear", lines }) {
  const sizes = lines.flatMap(({ values }) => Array.from(values, (value) => value ?? NaN)).filter((value) => Number.isFinite(value) && value !== 0);
  const positive = sizes.every((value) => value > 0);
  if (logY === "log") return { distr: 3 };
  if (logY === "linear" || sizes.length < 2) return { distr: 1 };
  const ordered = sizes.map(Math.abs).sort((a, b) => a - b);
  const median = ordered[ordered.length >> 1];
  if (ordered[ordered.length - 1] < 1e4 * median) return { distr: 1 };
  return positive ? { distr: 3 } : { distr: 4, asinh: median };
}

/**
 * Put a chart into an element, and return it.
 * @param {HTMLElement} parent
 * @param {Chart} chart
 */
export function draw(parent, chart) {
  const uPlot = /** @type {any} */ (window).uPlot;
  const style = getComputedStyle(parent);
  const [quiet, line, mark] = ["--quiet", "--line", "--mark"].map((name) => style.getPropertyValue(name).trim());
  const axis = { stroke: quiet, grid: { stroke: line, width: 0.5 }, ticks: { stroke: line, width: 0.5, size: 4 }, font: `${innerWidth >= 2200 ? 13 : 11}px system-ui` };
  const x = (/** @type {number} */ value) => (chart.unit === "time" ? time(value * 1000) : chart.unit === "step" ? count(value) : number(value));
  const y = scaleY(chart);
  const decades = { filter: (/** @type {any} */ _, /** @type {(number | null)[]} */ splits) =>
    splits.map((at) => (y.distr < 3 || at === 0 || Number.isInteger(Math.log10(Math.abs(at ?? NaN))) ? at : null)) };
  const drawMark = (/** @type {any} */ plot) => {
    if (chart.mark === null || chart.mark === undefined) return;
    const at = plot.valToPos(chart.mark, "x", true);
    if (at < plot.bbox.left || at > plot.bbox.left + plot.bbox.width) return;
    plot.ctx.save();
    plot.ctx.strokeStyle = mark;
    plot.ctx.setLineDash([5, 4]);
    plot.ctx.beginPath();
    plot.ctx.moveTo(at, plot.bbox.top);
    plot.ctx.lineTo(at, plot.bbox.top + plot.bbox.height);
    plot.ctx.stroke();
    plot.ctx.restore();
  };
  const options = {
    width: Math.max(200, parent.clientWidth),
    height: chart.height ?? 200,
    scales: { x: { time: chart.unit === "time", distr: chart.logX ? 3 : 1 }, y },
    axes: [
      { ...axis, size: innerWidth >= 2200 ? 36 : 30, values: chart.unit === "time" ? undefined : (/** @type {any} */ _, /** @type {(number|null)[]} */ at) => at.map((v) => (v === null ? "" : x(v))) },
      { ...axis, size: 62, grid: { ...axis.grid, ...decades }, ticks: { ...axis.ticks, ...decades }, values: (/** @type {any} */ _, /** @type {(number|null)[]} */ at) => at.map((v) => (v === null ? "" : number(v))) },
    ],
    series: [
      { label: chart.unit === "time" ? "time" : chart.unit === "step" ? "step" : "x", value: (/** @type {any} */ _, /** @type {number | null} */ v) => (v === null ? "–" : x(v)) },
      ...chart.lines.map((each, i) => ({
        label: printable(each.label),
        stroke: withAlpha(LINES[(each.color ?? i) % LINES.length], each.alpha ?? 1),
        width: each.width ?? 1.5,
        class: each.quiet ? "shadow" : undefined,
        dash: each.dash ? [6, 4] : undefined,
        points: each.points ? { show: true, size: 4 } : { show: undefined },
        spanGaps: false,
        value: (/** @type {any} */ _, /** @type {number | null} */ v) => number(v),
      })),
    ],
    bands: (chart.bands ?? []).map(([upper, lower, color]) => ({ series: [upper + 1, lower + 1], fill: withAlpha(LINES[color % LINES.length], 0.22) })),
    cursor: { drag: { x: Boolean(chart.onrange), y: false, setScale: false } },
    legend: { live: true },
    hooks: {
      draw: [drawMark],
      setSelect: [(/** @type {any} */ plot) => {
        if (!chart.onrange || plot.select.width < 4) return;
        chart.onrange(plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x"));
      }],
    },
  };
  const plot = new uPlot(options, [Array.from(chart.x), ...chart.lines.map(({ values }) => drawable(values, y.distr === 3))], parent);
  if (chart.onclick) {
    const { onclick } = chart;
    plot.over.style.cursor = "pointer";
    plot.over.addEventListener("click", () => {
      if (plot.cursor.idx !== null && plot.cursor.idx !== undefined && plot.select.width < 4) onclick(plot.data[0][plot.cursor.idx]);
    });
  }
  new ResizeObserver(() => {
    const width = Math.max(200, parent.clientWidth);
    if (parent.isConnected && Math.abs(width - plot.width) > 2) plot.setSize({ width, height: chart.height ?? 200 });
  }).observe(parent);
  return plot;
}

/** The difference of larger ones is infinite, with which no axis can be drawn. */
const LARGEST = 1e300;

/**
 * Return values with null for what no axis can show.
 * @param {ArrayLike<number | null | undefined>} values
 * @param {boolean} log
 */
function drawable(values, log) {
  return Array.from(values, (value) => {
    if (value === null || value === undefined) return value;
    return !Number.isFinite(value) || (log && value <= 0) ? null : Math.max(-LARGEST, Math.min(LARGEST, value));
  });
}

/**
 * @param {string} hex
 * @param {number} alpha
 */
function withAlpha(hex, alpha) {
  return alpha >= 1 ? hex : `${hex}${Math.round(alpha * 255).toString(16).padStart(2, "0")}`;
}

/**
 * Return a panel with a title and, to its right, what there is to say about it.
 * @param {string | Node} title
 * @param {import("./dom.js").Child} [aside]
 * @param {boolean} [wide]
 */
export function panel(title, aside, wide = false) {
  const body = h("div", {});
  const box = h("section", { class: wide ? "panel wide" : "panel" }, h("header", {}, h("h3", {}, title), h("span", { class: "quiet" }, aside)), body);
  return { box, body };
}
