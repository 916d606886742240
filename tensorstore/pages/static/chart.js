/** Line charts by uPlot, with the colors of the page. */

import { NOT_FINITE, dashOf, inks, lineColor } from "./colors.js";
import { h, select } from "./dom.js";
import { chartMenu } from "./download.js";
import { MOVES, count, counted, date, duration, notedAlike, number, ticks, within } from "./format.js";
import { stroke } from "./side.js";
import { go } from "./state.js";
import { tooltip } from "./tooltip.js";

const [FEW, FEW_OF_MANY, MANY] = [60, 15, 8]; // points that are each drawn, and those of one of many lines
const MOST_ROWS = 16; // of a tooltip
const NEAR = 40; // pixels to the next point that a tooltip shows
/** Distances of the marks of steps, which are whole. */
const WHOLE = Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((factor) => factor * 10 ** power)).flat();

/** Return what chooses the y axis. @param {State} now */
export const axisSelect = (now) => select("y axis", [["", "automatic"], ["0", "linear"], ["1", "logarithmic"]], now.logy ?? "", (logy) => go({ logy }));

/** Return uPlot's scale of y: asinh for many decades of both signs. @param {Chart} chart */
function scaleY({ logY = "0", lines }) {
  const held = lines.map(({ values }) => Array.from(values, (value) => value ?? NaN).filter(Number.isFinite)).filter(({ length }) => length);
  const sizes = held.flat().filter((value) => value !== 0);
  const positive = sizes.every((value) => value > 0);
  const ordered = sizes.map(Math.abs).sort((a, b) => a - b);
  const [least, most, median] = [ordered[0], ordered[ordered.length - 1], ordered[ordered.length >> 1]];
  const isCrowded = most > 1e7 * least; // uPlot has a mark for each decade
  if (logY === "1") return { distr: 3, isCrowded };
  if (!sizes.length) return { distr: 1, range: [-1, 1] }; // uPlot's is 0 to 100
  const tops = held.map((each) => each.reduce((a, b) => Math.max(a, b), 0)).sort((a, b) => a - b);
  const isHiding = positive && sizes.length === held.flat().length && most > 10 * tops[(tops.length - 1) >> 1]; // one line the others
  if (logY === "0" || sizes.length < 2 || (most < 1e4 * median && !isHiding)) return { distr: 1 };
  return positive ? { distr: 3, isCrowded } : { distr: 4, asinh: 10 ** Math.floor(Math.log10(median)), isCrowded }; // from others, uPlot's marks never end
}

/** Return whether uPlot's own axis cannot show values. @param {ArrayLike<number | null | undefined>} values */
const isFar = (values) => Array.from(values, (value) => Math.abs(value ?? 0)).some((size) => size > 1e30 || (size > 0 && size < 1e-20));

/** @type {(plot: any, min: number, max: number) => [number, number]} uPlot's own takes the smallest numbers for nothing */
function farRange(_, min, max) {
  const beyond = (max - min || Math.abs(max) || 1) / 10;
  return [min - beyond, max + beyond];
}

/** Return what chooses marks of y beyond 1e±32 and over many decades, where uPlot fails. @param {number} distr */
function farMarks(distr) {
  const incrs = /** @type {Marks} */ ((_, _axis, min, max) => [Math.max((max - min) / 3, 5)]);
  const splits = /** @type {Marks} */ ((_, _axis, min, max) => distr === 1 ? ticks(min, max, 5)
    : distr === 3 ? ticks(Math.log10(min), Math.log10(max), 5, 1).map((exponent) => 10 ** exponent) : min < 0 && max > 0 ? [min, 0, max] : [min, max]);
  return { incrs, splits, filter: (/** @type {any} */ _, /** @type {number[]} */ marks) => marks };
}

/** Return the least and the largest of some x, which must differ. @param {number[]} xs @returns {[number, number] | undefined} */
export function spanOf(xs) {
  const [low, high] = [xs.reduce((a, b) => Math.min(a, b), Infinity), xs.reduce((a, b) => Math.max(a, b), -Infinity)];
  return low < high ? [low, high] : undefined;
}

/** Return one x of several lines, and what puts the values of a line onto it. @param {ArrayLike<number>[]} xs */
export function together(xs) {
  const x = [...new Set(xs.flatMap((each) => Array.from(each)))].sort((a, b) => a - b);
  const index = new Map(x.map((each, i) => [each, i]));
  const spread = (/** @type {ArrayLike<number>} */ at, /** @type {ArrayLike<number | null>} */ values) => {
    /** @type {(number | null | undefined)[]} */
    const line = new Array(x.length).fill(undefined);
    for (let i = 0; i < values.length; i++) line[/** @type {number} */ (index.get(at[i]))] = values[i];
    return line;
  };
  return { x, spread };
}

/** Return a chart without what a logarithmic x axis cannot show. @param {Chart} chart */
function positive(chart) {
  const from = Array.from(chart.x).filter((x) => !(x > 0)).length;
  const cut = (/** @type {ArrayLike<any>} */ each) => Array.from(each).slice(from);
  return { ...chart, span: (chart.span?.[0] ?? 0) > 0 ? chart.span : undefined, x: cut(chart.x), lines: chart.lines.map((line) => ({ ...line, values: cut(line.values), raw: line.raw && cut(line.raw) })) };
}

/** Return for each x which of the lines with a value there are finite. @param {Chart} chart */
function finiteness({ x, lines }) {
  const held = lines.filter(({ quiet }) => !quiet).map(({ raw, values }) => raw ?? values);
  return Array.from(x, (_, i) => held.map((values) => values[i]).filter((value) => value != null).map(Number.isFinite));
}

/** Return what is said of values that are not finite. @param {{nonfinite: number, fault: number | null}} of */
export const faultsText = ({ nonfinite, fault }) => `NaN or inf at ${counted(nonfinite, "step")}, first at ${count(fault ?? 0)}`;

/** Put a chart into an element, and return it. @param {HTMLElement} parent @param {Chart} given */
export function draw(parent, given) {
  const chart = given.logX ? positive(given) : given;
  const { quiet, line, mark } = inks();
  const scale = innerWidth >= 2200 ? 1.2 : 1;
  const axis = { stroke: quiet, grid: { stroke: line, width: 0.5 }, ticks: { stroke: line, width: 0.5, size: 4 }, font: `${scale > 1 ? 14 : 11}px system-ui` };
  const y = scaleY(chart);
  const { height } = chart;
  const far = y.isCrowded || chart.lines.some(({ values }) => isFar(values));
  const last = Number(chart.x[chart.x.length - 1] ?? 0);
  const span = chart.span ?? (chart.unit === "step" && chart.x[0] === last && [last, last + 1]); // uPlot's is 0 to 100
  const letters = textOfX(chart, last, 60).length;
  const farX = chart.unit === "number" && isFar(chart.x);
  const decades = far ? {} : { filter: (/** @type {any} */ _, /** @type {(number | null)[]} */ splits) =>
    splits.map((at) => (y.distr < 3 || at === 0 || Number.isInteger(Math.log10(Math.abs(at ?? NaN))) ? at : null)) };
  const finite = finiteness(chart);
  const drawMarks = (/** @type {Plot} */ plot) => {
    const { ctx, bbox: { left, top, width, height } } = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    ctx.fillStyle = NOT_FINITE;
    for (const tall of [height, 5 * devicePixelRatio]) {
      ctx.globalAlpha = tall === height ? 0.15 : 1;
      ctx.beginPath(); // filled at once: where steps overlap, colors do not add up
      finite.forEach((each, i) => {
        if (!each.includes(false) || (tall === height && each.includes(true))) return;
        const [from, to] = [chart.x[i], chart.x[i + 1] ?? chart.x[i]].map((x) => plot.valToPos(x, "x", true));
        ctx.rect(from - 1, top + height - tall, Math.max(3, to - from), tall);
      });
      ctx.fill();
    }
    const at = plot.valToPos(chart.mark ?? NaN, "x", true);
    ctx.strokeStyle = mark;
    ctx.setLineDash([5, 4]);
    ctx.beginPath();
    ctx.moveTo(at, top);
    ctx.lineTo(at, top + height);
    ctx.stroke();
    ctx.restore();
  };
  /** @type {PlotOptions} */
  const options = {
    width: Math.max(200, parent.clientWidth),
    height,
    padding: [8 * scale, Math.max(22, 3.5 * letters) * scale, null, null], // half of the last mark's text
    scales: { x: { time: chart.unit === "time", distr: chart.logX ? 3 : 1, range: farX ? farRange : span && (() => span) }, y: far && y.distr === 1 ? { ...y, range: farRange } : y },
    axes: [
      { ...axis, ...(farX && farMarks(1)), ...(chart.unit === "step" && !chart.logX && { incrs: WHOLE }), space: Math.max(60, 7.8 * letters) * scale, size: 26 * scale,
        values: (_, at, _axis, _space, apart) => at.map((v) => (v === null ? "" : textOfX(chart, v, apart))) },
      { ...axis, size: 66 * scale, space: (height < 180 ? 20 : 30) * scale, ...(far && farMarks(y.distr)), grid: { ...axis.grid, ...decades }, ticks: { ...axis.ticks, ...decades }, values: (_, at) => finite.flat().includes(true) ? notedAlike(at) : [] },
    ],
    series: [
      {},
      ...chart.lines.map((each, i) => ({
        label: each.label,
        stroke: withAlpha(lineColor(each.color ?? i), each.alpha ?? 1),
        width: each.width ?? 1.5,
        dash: dashOf(each.color ?? i),
        points: pointsOf(each, chart.lines.length > MANY ? FEW_OF_MANY : FEW),
        spanGaps: false,
      })),
    ],
    bands: (chart.bands ?? []).map(([upper, lower, color]) => ({ series: [upper + 1, lower + 1], fill: withAlpha(lineColor(color), 0.22) })),
    cursor: { drag: { x: Boolean(chart.onrange), y: false, setScale: false }, points: { show: false },
      ...(chart.sync && { sync: { key: chart.sync, scales: ["x", null], filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } } }) },
    legend: { show: false },
    hooks: {
      draw: [drawMarks],
      setCursor: [(plot) => explain(plot, chart)],
      setSelect: [(plot) => {
        if (!chart.onrange || plot.select.width < 4) return;
        chart.onrange(plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x"));
      }],
    },
  };
  const plot = new uPlot(options, [Array.from(chart.x), ...chart.lines.map(({ values }) => drawable(values, y.distr === 3))], parent);
  const header = parent.previousElementSibling;
  const title = header?.querySelector("h3")?.textContent ?? "chart";
  Object.assign(plot.over, { tabIndex: 0, role: "application", ariaLabel: `${title}: arrow keys move through its values`,
    onmouseleave: () => tooltip(null), onblur: () => plot.setCursor({ left: -10, top: -10 }), onkeydown: (/** @type {KeyboardEvent} */ event) => keyDown(event, plot, chart) });
  header?.querySelector(".menu")?.remove();
  header?.append(chartMenu(plot, chart, title));
  if (chart.onclick) {
    plot.over.style.cursor = "pointer";
    plot.over.addEventListener("click", () => { if (plot.select.width < 4) choose(plot, chart); });
  }
  const sizes = new ResizeObserver(() => {
    const width = Math.max(200, parent.clientWidth);
    if (!plot.root.isConnected) { // uPlot refers to all that it synchronizes
      plot.destroy();
      sizes.disconnect();
    } else if (Math.abs(width - plot.width) > 2) plot.setSize({ width, height });
  });
  for (const each of [parent, plot.root]) sizes.observe(each);
  return plot;
}

/** Return an x as text. @param {Chart} chart @param {number} value @param {number} [apart] the distance of marks, by which a time has its seconds, or is a day */
function textOfX(chart, value, apart = 1) {
  if (chart.unit === "time") return date(value * 1000, apart < 60 ? 19 : apart < 86400 ? 16 : 10);
  if (chart.unit === "duration") return duration(value);
  return chart.unit === "step" ? count(value) : number(value);
}

/** Return the points of a line that are drawn: all of few, else those without a neighbor. @param {ChartLine} line @param {number} few */
function pointsOf(line, few) {
  const values = line.values;
  const places = Array.from(values, (_, i) => i).filter((i) => values[i] !== undefined);
  const has = (/** @type {number} */ at) => Number.isFinite(values[places[at]] ?? NaN);
  const present = places.filter((_, at) => has(at));
  const drawn = line.quiet ? [] : present.length <= few ? present : places.filter((_, at) => has(at) && !has(at - 1) && !has(at + 1));
  return { show: drawn.length > 0, size: 5, width: 0, fill: lineColor(line.color ?? 0), filter: () => drawn };
}

/** Do what a click into a chart does at its cursor. @param {Plot} plot @param {Chart} chart */
function choose({ cursor: { idx }, data: [xs] }, { onclick }) {
  if (idx != null) onclick?.(xs[idx]);
}

/** Move the cursor of a chart by a key, or choose what it is at. @param {KeyboardEvent} event @param {Plot} plot @param {Chart} chart */
function keyDown(event, plot, chart) {
  const { key } = event;
  const [xs] = plot.data;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (key === "Enter") choose(plot, chart);
  else if (key in MOVES && xs.length) plot.setCursor({ left: plot.valToPos(xs[within((plot.cursor.idx ?? -1) + MOVES[key], xs.length)], "x"), top: plot.over.clientHeight / 2 });
  else return;
  event.preventDefault();
}

/** Show the values of the lines at the pointer, the largest first. @param {Plot} plot @param {Chart} chart */
function explain(plot, chart) {
  const { left, top } = plot.cursor;
  if (!plot.over.matches(":hover, :focus")) return; // another chart has the pointer
  if (left < 0 || plot.cursor.idx == null) return tooltip(null);
  const at = Number(plot.data[0][plot.cursor.idx]);
  const rows = chart.lines.flatMap((line, i) => {
    if (line.quiet) return [];
    const place = nearestPlace(plot, i + 1, left);
    if (place < 0) return [];
    const value = Number(line.values[place]);
    const shown = plot.data[i + 1][place];
    const raw = line.raw?.[place];
    const text = `${number(value)}${raw == null ? "" : ` (saved: ${number(raw)})`}`;
    const own = Number(plot.data[0][place]);
    return [{ value, distance: shown === null ? Infinity : Math.abs(plot.valToPos(shown, "y") - top), mark: stroke(line.color ?? i),
      term: ` ${line.label}`, text: own === at ? text : `${text} at ${textOfX(chart, own)}` }];
  });
  if (!rows.length) return tooltip(null);
  const near = rows.sort((a, b) => a.distance - b.distance).slice(0, MOST_ROWS);
  const content = [...near].sort((a, b) => (Number.isNaN(b.value) ? 1 : Number.isNaN(a.value) ? -1 : b.value - a.value))
    .map(/** @returns {TooltipRow} */ ({ mark, term, text, distance }) => [term, text, mark, rows.length > 1 && distance === near[0].distance]);
  const box = plot.over.getBoundingClientRect();
  const title = `${chart.unit === "step" ? "step " : ""}${textOfX(chart, at)}`;
  tooltip({ title, rows: content, note: rows.length > near.length ? `and ${count(rows.length - near.length)} further away` : "" }, box.left + left, box.top + top);
}

/** Return the place of a line's value at the cursor, else of the nearest, -1 if none is near. @param {Plot} plot @param {number} series @param {number} left */
function nearestPlace(plot, series, left) {
  const [xs, values] = [plot.data[0], plot.data[series]];
  const isHeld = (/** @type {number} */ i) => values[i] !== undefined;
  const at = Number(plot.cursor.idx);
  if (isHeld(at)) return at;
  let [low, high] = [at, at];
  const far = (/** @type {number} */ i) => Math.abs(plot.valToPos(xs[i], "x") - left);
  while (low >= 0 && !isHeld(low)) low--;
  while (high < xs.length && !isHeld(high)) high++;
  const found = [low, high].filter((i) => i >= 0 && i < xs.length && far(i) <= NEAR).sort((a, b) => far(a) - far(b));
  return found[0] ?? -1;
}

/** The difference of larger ones is infinite: no axis can show it. */
const LARGEST = 1e300;

/** Return values with null for what no axis can show. @param {ArrayLike<number | null | undefined>} values @param {boolean} log */
function drawable(values, log) {
  return Array.from(values, (value) => {
    if (value == null) return value;
    return !Number.isFinite(value) || (log && value <= 0) ? null : Math.max(-LARGEST, Math.min(LARGEST, value));
  });
}

/** @param {string} color @param {number} alpha */
const withAlpha = (color, alpha) => alpha >= 1 ? color : `${color}${Math.round(alpha * 255).toString(16).padStart(2, "0")}`;

/** Return a panel with a title and a remark to its right. @param {string} title @param {Child} [aside] @param {boolean} [wide] */
export function panel(title, aside, wide = false) {
  const body = h("div");
  const box = h("section", { class: wide ? "panel wide" : "panel" }, h("header", {}, h("h3", { title }, title), h("span", { class: "quiet aside" }, aside)), body);
  return { box, body };
}
