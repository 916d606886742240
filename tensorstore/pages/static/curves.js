/** Curves of a scalar in several runs, in one chart. */

import { axisOf, draw, spanOf, together } from "./chart.js";
import { colorsOf } from "./choice.js";
import { fill, h, note } from "./dom.js";
import { counted, grouped, number } from "./format.js";
import { isConstant, rankOf } from "./scalars.js";
import { smooth } from "./smooth.js";
import { go } from "./state.js";

const UNITS = /** @type {Record<string, Chart["unit"]>} */ ({ time: "time", relative: "duration" });

/** @param {Spec} spec */
export const title = ({ name, mode }) => mode ? `${name} · ${mode}` : name;

/** Return a chart for each scalar, and if x is steps of a mode, for each of its modes. @param {ScalarRow[]} rows @param {State} now @returns {Spec[]} */
export function specsOf(rows, now) {
  return [...grouped(rows, ({ name }) => name)].flatMap(/** @returns {Spec[]} */ ([name, found]) => {
    const modes = [...new Set(found.map(({ mode }) => mode))].sort((a, b) => Number(b === "TRAIN") - Number(a === "TRAIN"));
    return now.x || modes.length === 1 ? [{ key: name, name, mode: null }] : modes.map((mode) => ({ key: `${name} ${mode}`, name, mode }));
  });
}

/** Return whether a scalar changes in one of the runs. @param {ScalarRow[]} rows @param {Spec} spec */
export const changes = (rows, { name }) => rows.some((row) => row.name === name && !isConstant(row));

/** Return what says how early a chart is shown. @param {ScalarRow[]} rows @returns {(spec: Spec) => number} */
export function rankOfSpecs(rows) {
  const losses = new Set(rows.filter(({ loss }) => loss).map(({ name }) => name));
  return ({ name }) => rankOf(name, losses.has(name));
}

/**
 * Draw the curves of a scalar into its panel.
 * @param {Place} place the height of the chart is in the data of its box
 * @param {Curve[]} all those of other scalars are left out
 * @param {string[]} runs in the order of the lines
 * @param {Info} info
 * @param {State} now
 * @param {boolean} [equal] the x axis is that of all curves of the modes
 */
export function drawCurves({ spec, box, body }, all, runs, info, now, equal = false) {
  const curves = all.filter((curve) => curve.name === spec.name && (spec.mode === null || curve.mode === spec.mode) && curve.steps.length)
    .sort((a, b) => runs.indexOf(a.run) - runs.indexOf(b.run));
  if (!curves.length) return fill(body, note(info.frozen ? "This report does not hold it." : "Nothing was saved of it in these runs."));
  const weight = Number(now.smooth ?? 0);
  const color = colorsOf(info, now);
  const began = new Map(info.runs.map((run) => [run.name, run.started]));
  const xOf = (/** @type {Curve} */ curve) => now.x === "time" ? curve.times.map((each) => each / 1000)
    : now.x === "relative" ? curve.times.map((each) => Math.max(0, each - (began.get(curve.run) ?? curve.times[0])) / 1000)
    : now.x === "global" ? curve.globals : curve.steps;
  const xs = curves.map(xOf);
  const { x, spread } = together(xs);
  /** @type {ChartLine[]} */
  const lines = [];
  /** @type {[number, number, number][]} */
  const bands = [];
  const modes = new Set(curves.map(({ mode }) => mode));
  curves.forEach((curve, i) => {
    const shade = color(curve.run);
    const label = [(info.runs.length > 1 || modes.size === 1) && curve.run, modes.size > 1 && curve.mode].filter(Boolean).join(" ");
    const dash = modes.size > 1 && (curve.mode === "EVAL" || curve.mode === "PREDICT");
    if (curve.min.some((value, at) => !Object.is(value, curve.max[at]))) {
      bands.push([lines.length, lines.length + 1, shade]);
      for (const edge of /** @type {const} */ (["max", "min"])) lines.push({ label: `${label} ${edge}`, values: spread(xs[i], curve[edge]), color: shade, width: 0.3, alpha: 0.4, quiet: true });
    }
    const raw = spread(xs[i], curve.mean);
    if (weight > 0 && curve.mean.length > 2) {
      lines.push({ label: `${label} saved`, values: raw, color: shade, width: 1, alpha: 0.3, quiet: true });
      lines.push({ label, values: spread(xs[i], smooth(curve.mean, weight)), raw, color: shade, width: 1.75, dash });
    } else lines.push({ label, values: raw, color: shade, width: 1.5, dash });
  });
  fill(body);
  draw(body, { x, lines, bands, unit: UNITS[now.x] ?? "step", sync: "scalars", span: equal ? spanOf(all.filter(({ mode }) => now.x || modes.has(mode)).flatMap(xOf)) : undefined, logX: now.logx === "1" && now.x !== "time", logY: axisOf(now),
    height: Number(box.dataset.height),
    onclick: (at) => { if (!now.x) go({ view: "tensor", name: spec.name, step: at, run: curves[0].run, mode: curves[0].mode }); } });
  const bad = curves.filter(({ nonfinite }) => nonfinite);
  const aside = box.querySelector(".aside");
  if (aside) fill(aside, bad.length > 0 && h("span", { class: "bad" }, `NaN or infinite ${curves.length > 1 ? `in ${bad.length} of ${curves.length} lines` : `at ${counted(bad[0].nonfinite, "step")}`}`),
    !bad.length && curves.length === 1 && `last ${number(curves[0].last.value)}`);
}
