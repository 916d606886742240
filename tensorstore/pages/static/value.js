/** The value of a tensor at a step as an image, with its gradient and its update next to it. */

import { NotInReport, loadTensor, loadTensorNames, loadValue, unlessMissing } from "./api.js";
import { panel, draw } from "./chart.js";
import { NOT_FINITE, indexOf, lookup, pixelOf, scaleOf } from "./colors.js";
import { fill, h, select } from "./dom.js";
import { count, counted, number } from "./format.js";
import { legend } from "./heatmap.js";
import { REPLACE, go } from "./state.js";
import { tooltip } from "./tooltip.js";

/** @typedef {{run: string, name: string, mode: string, worker: string, step: number}} At */

/** Add the value at a step, its gradient and its update to a view, as far as they were saved. @param {HTMLElement} body @param {At} at @param {State} now */
export async function valuePanels(body, at, now) {
  const axes = now.axes ?? "";
  const index = now.index ?? "";
  const value = await unlessMissing(loadValue({ ...at, axes, index }));
  if (value instanceof NotInReport) {
    const { box, body: inside } = panel(`Value at step ${count(at.step)}`);
    fill(inside, h("p", { class: "quiet" }, value.message));
    body.append(box);
    return;
  }
  if (!value) {
    const { box, body: inside } = panel(`Value at step ${count(at.step)}`);
    fill(inside, h("p", { class: "quiet" }, "No raw value was saved at this step, only statistics. Save raw values with save_raw_tensor=True in the collection's ReductionConfig."));
    body.append(box);
    return;
  }
  if (!value.shape.length || value.total === 1) return; // the chart of its values says all
  body.append(imagePanel(`Value at step ${count(at.step)}`, value));
  const names = await loadTensorNames(at.run);
  for (const [prefix, title] of [["gradient/", "Its gradient"], ["update/", "Its update"]]) {
    if (!names.includes(prefix + at.name)) continue;
    const found = await unlessMissing(loadValue({ ...at, name: prefix + at.name, axes, index }));
    if (found && !(found instanceof NotInReport)) body.append(imagePanel(`${title} at step ${count(at.step)}`, found));
  }
  const before = (await loadTensor({ run: at.run, name: at.name, mode: at.mode, worker: at.worker })).steps.filter((step) => step < at.step).pop();
  if (before === undefined || at.name.startsWith("gradient/")) return;
  const earlier = await unlessMissing(loadValue({ ...at, step: before, axes, index }));
  if (earlier && !(earlier instanceof NotInReport) && earlier.values.length === value.values.length) {
    const values = value.values.map((each, i) => each - earlier.values[i]);
    body.append(imagePanel(`Its change since step ${count(before)}`, { ...value, values, histogram: null, extremes: null }));
  }
}

/** @param {string} title @param {Value} value */
function imagePanel(title, value) {
  const { rows, columns, values } = value;
  const thinned = value.rowStride > 1 || value.columnStride > 1;
  const { box, body } = panel(title, `${value.dtype} [${value.shape.join(", ")}]${thinned ? `, every ${value.rowStride} × ${value.columnStride}` : ""}`);
  const scale = scaleOf(values);
  scale.log = false;
  body.append(legend(scale, "", number, values.some((each) => !Number.isFinite(each)) ? [{ kind: "nonfinite", label: "NaN or infinity" }] : []));
  body.append(picture(rows, columns, values, scale, value));
  if (value.shape.length > 2) body.append(slicer(value));
  const bad = values.filter((each) => !Number.isFinite(each)).length;
  if (bad) body.append(h("p", { class: "bad" }, `${counted(bad, "element")} of this slice NaN or infinite`));
  if (value.extremes) {
    const place = (/** @type {number[]} */ where) => `at [${where.join(", ")}]`;
    const { min, max, nan, nanCount } = value.extremes;
    body.append(h("div", { class: "quiet" },
      min && `min ${number(min.value)} ${place(min.index)}`, min && max && " · ", max && `max ${number(max.value)} ${place(max.index)}`,
      nanCount ? ` · first NaN ${nan ? place(nan) : ""}, ${counted(nanCount, "element")} not finite` : ""));
  }
  if (value.histogram) {
    const { edges, counts } = value.histogram;
    const chart = h("div", {});
    body.append(chart);
    queueMicrotask(() => draw(chart, { x: counts.map((_, i) => (edges[i] + edges[i + 1]) / 2), unit: "number", height: 120,
      lines: [{ label: "elements", values: counts, color: 0 }] }));
  }
  return box;
}

/**
 * Return an image with one pixel block an element.
 * @param {number} rows
 * @param {number} columns
 * @param {number[]} values row after row
 * @param {Scale} scale
 * @param {Value} about
 */
function picture(rows, columns, values, scale, about) {
  const canvas = h("canvas", { class: "image", width: columns, height: rows, role: "img", "aria-label": `${rows} × ${columns} elements` });
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const palette = lookup(scale.kind);
  values.forEach((value, i) => { pixels[i] = Number.isFinite(value) ? palette[indexOf(scale, value)] : pixelOf(NOT_FINITE); });
  context.putImageData(image, 0, 0);
  const block = Math.max(1, Math.min(28, Math.floor(400 / columns), Math.floor(300 / rows)));
  canvas.style.width = `${Math.max(columns * block, 24)}px`;
  canvas.style.height = `${Math.max(rows * block, 12)}px`;
  canvas.addEventListener("pointermove", (event) => {
    const row = Math.floor((event.offsetY / canvas.clientHeight) * rows);
    const column = Math.floor((event.offsetX / canvas.clientWidth) * columns);
    if (row < 0 || column < 0 || row >= rows || column >= columns) return;
    tooltip({ title: `row ${row * about.rowStride}, column ${column * about.columnStride}`, pairs: [["value", number(values[row * columns + column])]] }, event.clientX, event.clientY);
  });
  canvas.addEventListener("pointerleave", () => tooltip(null));
  return canvas;
}

/** Return what chooses the two dimensions that are seen and the place in the others. @param {Value} value */
function slicer(value) {
  const dimensions = value.shape.map((length, axis) => ({ value: String(axis), text: `${axis} (${length})` }));
  const [down, across] = value.axes;
  const box = h("div", { class: "tools" },
    select("rows: dimension", dimensions, String(down), (axis) => go({ axes: `${axis},${Number(axis) === across ? down : across}`, index: null })),
    select("columns: dimension", dimensions, String(across), (axis) => go({ axes: `${Number(axis) === down ? across : down},${axis}`, index: null })));
  value.shape.forEach((length, axis) => {
    if (axis === down || axis === across) return;
    const field = h("input", { type: "number", min: 0, max: length - 1, value: value.index[axis] ?? 0, "aria-label": `place in dimension ${axis}`,
      onchange: () => go({ index: value.shape.map((_, each) => (each === axis ? Number(field.value) : value.index[each] ?? 0)).join(",") }, REPLACE) });
    box.append(h("label", { class: "field" }, h("span", {}, `dimension ${axis}, of ${length}`), field));
  });
  return box;
}
