/** Hyperparameters against a metric. */

import { css, lineColor, lookup } from "./colors.js";
import { h, pathOf, s } from "./dom.js";
import { inOrder, notedAlike, textOf, ticks } from "./format.js";
import { tooltip } from "./tooltip.js";

const WIDTH = 900;
const HEIGHT = 320;

/** Return an axis: numbers to scale, logarithmic over 1.5 decades, others evenly. @param {Column} column @param {Run[]} runs */
function axisOf(column, runs) {
  const values = runs.map(column.value).filter((value) => value != null);
  const finite = values.filter(Number.isFinite);
  const axis = (/** @type {(value: any) => number} */ place, /** @type {any[]} */ marks, /** @type {string[]} */ texts) => ({ column,
    marks: marks.map((mark, i) => ({ at: place(mark), text: texts[i] })),
    place: (/** @type {Run} */ run) => { const at = place(column.value(run) ?? NaN); return Number.isFinite(at) ? at : null; } });
  if (finite.length && values.every((value) => typeof value === "number")) {
    let [low, high] = [Math.min(...finite), Math.max(...finite)];
    const log = low > 0 && high / low > 30;
    if (low === high) [low, high] = [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
    const map = (/** @type {number} */ value) => log ? Math.log10(value) : value;
    const distinct = [...new Set(finite)];
    const marks = distinct.length < 6 && distinct.every(Number.isInteger) ? distinct : log ? ticks(Math.log10(low), Math.log10(high), 6, 1).map((exponent) => 10 ** exponent) : ticks(low, high, 6);
    return axis((value) => (map(value) - map(low)) / (map(high) - map(low)), marks, notedAlike(marks));
  }
  const kinds = [...new Set(values.map(textOf))].sort(inOrder);
  const places = new Map(kinds.map((kind, i) => [kind, kinds.length === 1 ? 0.5 : i / (kinds.length - 1)]));
  const every = Math.ceil(kinds.length / 8);
  const marks = kinds.filter((_, i) => i % every === 0);
  return axis((value) => places.get(textOf(value)) ?? NaN, marks, marks.map((kind) => kind.length > 14 ? `…${kind.slice(-13)}` : kind));
}

/** Return a picture. @param {string} label @param {Element[]} parts */
const picture = (label, parts) => h("figure", { class: "figure" }, s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label }, ...parts));

/** Return the attributes of a run's mark. @param {Run} run @param {Column[]} columns @param {(run: Run) => void} open @returns {Attributes} */
function ofRun(run, columns, open) {
  const hide = () => tooltip(null);
  const say = (/** @type {{x: number, y: number}} */ { x, y }) => tooltip({ title: run.name, rows: columns.map((column) => [column.title, textOf(column.value(run)) || "–"]) }, x, y);
  const onclick = () => { hide(); open(run); };
  return { class: "run", tabindex: 0, role: "link", "aria-label": run.name, onclick, onpointerleave: hide, onblur: hide,
    onkeydown: ({ key }) => { if (key === "Enter") onclick(); }, onpointermove: say, onfocus: (/** @type {any} */ { target }) => say(target.getBoundingClientRect()) };
}

/** Return a scatter of a metric over a hyperparameter. @param {Scatter} plot */
export function scatter({ runs, x, y, color, open }) {
  const [left, right, top, bottom] = [70, WIDTH - 20, 14, HEIGHT - 44];
  const [across, up] = [axisOf(x, runs), axisOf(y, runs)];
  const px = (/** @type {number} */ at) => left + 10 + at * (right - left - 20);
  const py = (/** @type {number} */ at) => bottom - 8 - at * (bottom - top - 16);
  const points = runs.flatMap((run) => {
    const [a, b] = [across.place(run), up.place(run)];
    if (a === null || b === null) return [];
    return [s("circle", { cx: px(a), cy: py(b), r: 5, fill: lineColor(color(run.name)), "fill-opacity": 0.85, ...ofRun(run, [x, y], open) })];
  });
  return picture(`${y.title} over ${x.title}`, [
    ...across.marks.flatMap(({ at, text }) => [s("path", { d: `M${px(at)} ${top}V${bottom}`, class: "grid" }), s("text", { x: px(at), y: bottom + 16, "text-anchor": "middle" }, text)]),
    ...up.marks.flatMap(({ at, text }) => [s("path", { d: `M${left} ${py(at)}H${right}`, class: "grid" }), s("text", { x: left - 8, y: py(at) + 4, "text-anchor": "end" }, text)]),
    s("text", { x: (left + right) / 2, y: HEIGHT - 8, "text-anchor": "middle", class: "title" }, x.title),
    s("text", { x: 14, y: (top + bottom) / 2, "text-anchor": "middle", class: "title", transform: `rotate(-90 14 ${(top + bottom) / 2})` }, y.title),
    ...points]);
}

/** Return runs as lines across the axes of columns, colored by the last. @param {Parallel} plot */
export function parallel({ runs, columns, open }) {
  const [left, right, top, bottom] = [60, WIDTH - 90, 40, HEIGHT - 16];
  const axes = columns.map((column) => axisOf(column, runs));
  const px = (/** @type {number} */ i) => left + (i / Math.max(1, axes.length - 1)) * (right - left);
  const py = (/** @type {number} */ at) => bottom - at * (bottom - top);
  const palette = lookup("sequential");
  const last = axes[axes.length - 1];
  const lines = runs.flatMap((run) => {
    const worth = last.place(run);
    if (worth === null) return [];
    const d = pathOf(axes.map((axis, i) => { const at = axis.place(run); return at === null ? null : [px(i), py(at)]; }));
    return [s("path", { d, fill: "none", stroke: css(palette[Math.round(30 + worth * 190)]), "stroke-width": 2, "stroke-opacity": 0.8, ...ofRun(run, columns, open) })];
  });
  return picture(columns.map(({ title }) => title).join(", "), [...lines,
    ...axes.flatMap((axis, i) => [s("path", { d: `M${px(i)} ${top}V${bottom}`, class: "axis" }),
      s("text", { ...(axis === last ? { x: WIDTH, "text-anchor": "end" } : { x: px(i), "text-anchor": "middle" }), y: i % 2 && axes.length > 5 ? 28 : 14, class: "title" }, axis.column.title),
      ...axis.marks.map(({ at, text }) => s("text", { x: px(i) + 5, y: py(at) + 4, class: "mark" }, text))])]);
}
