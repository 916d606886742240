/** Curves of a metric in several runs, in one chart. */

import { draw, faultsText, spanOf, together } from "./chart.js";
import { colorsOf, listOf } from "./choice.js";
import { NUM_COLORS } from "./colors.js";
import { bad, fill, h, note } from "./dom.js";
import { grouped, inOrder, number } from "./format.js";
import { isConstant, isHeldOut, metricOf, rankOf } from "./scalars.js";
import { stroke } from "./side.js";
import { go } from "./state.js";

const UNITS = /** @type {Record<string, Chart["unit"]>} */ ({ time: "time", relative: "duration" });

/** Return a chart for each metric of any data, and if x is steps of a mode, for each mode. @param {ScalarRow[]} rows @param {State} now @returns {Spec[]} */
export function specsOf(rows, now) {
  return [...grouped(rows, ({ name }) => metricOf(name))].flatMap(([metric, found]) => {
    const modes = [...grouped(found, ({ mode }) => (now.x ? "" : mode))].sort(([a], [b]) => Number(b === "TRAIN") - Number(a === "TRAIN"));
    const specs = modes.map(/** @returns {Spec} */ ([mode, mine]) => {
      const names = [...new Set(mine.map(({ name }) => name))];
      const title = names.length > 1 ? metric : names[0];
      return modes.length > 1 ? { key: `${metric} ${mode}`, title, names, mode } : { key: metric, title, names, mode: null };
    });
    const titles = grouped(specs, ({ title }) => title);
    return specs.map((spec) => ({ ...spec, title: titles.get(spec.title)?.[1] ? `${spec.title} · ${spec.mode}` : spec.title }));
  });
}

/** Return the range of x that the state shows, if x is in it. @param {State} now @param {number[]} xs @returns {[number, number] | undefined} */
function zoomOf(now, xs) {
  const [from, to] = listOf(now.zoom).map(Number);
  return xs.some((x) => x >= from && x <= to) ? [from, to] : undefined;
}

/** Return whether a scalar changes in one of the runs. @param {ScalarRow[]} rows @param {Spec} spec */
export const changes = (rows, { names }) => rows.some((row) => names.includes(row.name) && !isConstant(row));

/** Return how early a chart is shown. @param {ScalarRow[]} rows */
export function rankOfSpecs(rows) {
  const losses = new Set(rows.filter(({ loss }) => loss).map(({ name }) => name));
  return (/** @type {Spec} */ { names }) => Math.min(...names.map((name) => rankOf(name, losses.has(name))));
}

/** Draw curves into a panel: a color for each run, dashes for its scalars and modes; of one run, colors. @type {DrawCurves} */
export function drawCurves({ spec, box, body }, all, runs, info, now, equal = false) {
  const order = (/** @type {Curve} */ { name, mode }) => `${isHeldOut(name)} ${mode !== "TRAIN"} ${name} ${mode}`; // false is before true
  const curves = all.filter((curve) => spec.names.includes(curve.name) && (spec.mode === null || curve.mode === spec.mode) && curve.steps.length)
    .sort((a, b) => inOrder(order(a), order(b)) || runs.indexOf(a.run) - runs.indexOf(b.run));
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
  const partOf = (/** @type {Curve} */ { name, mode }) => [spec.names.length > 1 && name, curves.some((each) => each.name === name && each.mode !== mode) && mode].filter(Boolean).join(" ");
  const parts = [...new Set(curves.map(partOf))];
  const isAlone = info.runs.length === 1;
  curves.forEach((curve, i) => {
    const part = partOf(curve);
    const shade = isAlone ? parts.indexOf(part) : parts.length > 1 ? color(curve.run) % NUM_COLORS + parts.indexOf(part) * NUM_COLORS : color(curve.run);
    const label = [(!isAlone || !part) && curve.run, part].filter(Boolean).join(" ");
    if (curve.min.some((value, at) => !Object.is(value, curve.max[at]))) {
      bands.push([lines.length, lines.length + 1, shade]);
      for (const edge of /** @type {const} */ (["max", "min"])) lines.push({ label: `${label} ${edge}`, values: spread(xs[i], curve[edge]), color: shade, width: 0.3, alpha: 0.4, quiet: true });
    }
    const raw = spread(xs[i], curve.mean);
    if (weight > 0 && curve.mean.length > 2) lines.push({ label: `${label} saved`, values: raw, color: shade, width: 1, alpha: 0.3, quiet: true },
      { label, values: spread(xs[i], smooth(curve.mean, weight)), raw, color: shade, width: 1.75 });
    else lines.push({ label, values: raw, color: shade });
  });
  fill(body);
  draw(body, { x, lines, bands, unit: UNITS[now.x] ?? "step", sync: "scalars", span: equal ? spanOf(all.filter(({ mode }) => now.x || modes.has(mode)).flatMap(xOf)) : zoomOf(now, x), logX: now.logx === "1" && now.x !== "time", logY: now.logy ?? "",
    height: Number(box.dataset.height),
    onrange: equal ? undefined : (from, to) => go({ zoom: [from, to] }) });
  const faulty = curves.filter(({ nonfinite }) => nonfinite);
  const isOne = curves.length === parts.length;
  const aside = box.querySelector(".aside");
  if (aside) fill(aside, faulty.length > 0 && bad(curves.length > 1 ? `NaN or inf in ${faulty.length} of ${curves.length} lines` : faultsText(faulty[0])),
    ...(parts.length > 1 || (isOne && !faulty.length) ? parts.map((part, i) => h("span", { class: isAlone ? "part" : "part dashes" }, part && stroke(isAlone ? i : i * NUM_COLORS), part || "last", isOne && ` ${number(curves[i].last.value)}`)) : []));
}

/** Return the exponential moving average, its start corrected for bias. Values that are not finite leave gaps. @param {ArrayLike<number | null>} values @param {number} weight of the past, 0 to 1 */
function smooth(values, weight) {
  let [average, norm] = [0, 0];
  return Array.from(values, (value) => {
    if (value === null || !Number.isFinite(value)) return null;
    average = weight * average + (1 - weight) * value;
    norm = weight * norm + (1 - weight);
    return average / norm;
  });
}
