/** The value of a tensor at a step as a picture. */

import { NOT_IN_REPORT, addressOfNpy, load, loadTensorNames, unlessMissing } from "./api.js";
import { panel } from "./chart.js";
import { NOT_FINITE, indexOf, lookup, penOf, pixelOf, scaleOf } from "./colors.js";
import { bad, field, h, note, quiet } from "./dom.js";
import { MOVES, count, counted, number, within } from "./format.js";
import { legend } from "./heatmap.js";
import { REPLACE, go } from "./state.js";
import { tooltip } from "./tooltip.js";

const BLOCK = 28; // pixels of an element, at most
const UNSAVED = "No raw value was saved at this step, only statistics. ReductionConfig(save_raw_tensor=True) of a collection saves them.";

/** Add the value at a step to a view, with gradient and update. @param {HTMLElement} body @param {At} at @param {State} now */
export async function valuePanels(body, at, now) {
  const slice = now.slice ?? "";
  const value = await unlessMissing(load("value", { ...at, slice }));
  if (!value) {
    const { box, body: inside } = panel(`Value at step ${count(at.step)}`, "", true);
    inside.append(note(value === null ? UNSAVED : NOT_IN_REPORT));
    body.append(box);
    return;
  }
  if (!value.shape.length || value.total === 1) return; // the chart of its values says all
  const row = h("div", { class: "panels small wide" });
  body.append(row);
  row.append(valuePanel(`Value at step ${count(at.step)}`, value, at));
  const names = await loadTensorNames(at.run);
  for (const kind of ["gradient", "update"]) {
    const other = { ...at, name: `${kind}/${at.name}` };
    const found = names.includes(other.name) && await unlessMissing(load("value", { ...other, slice }));
    if (found) row.append(valuePanel(`Its ${kind} at step ${count(at.step)}`, found, other));
  }
  const before = (await load("tensor", { ...at, step: null })).steps.filter((step) => step < at.step).pop();
  if (before === undefined || value.image || at.name.startsWith("gradient/")) return;
  const earlier = await unlessMissing(load("value", { ...at, step: before, slice }));
  if (earlier && earlier.values.length === value.values.length) {
    const values = value.values.map((each, i) => each === null ? null : each - (earlier.values[i] ?? 0));
    row.append(valuePanel(`Its change since step ${count(before)}`, { ...value, values, extremes: null, image: null }));
  }
}

/** @param {string} title @param {Value} value @param {At} [at] where it is */
function valuePanel(title, value, at) {
  const { values, tiles, strides, extremes } = value;
  const npy = at && addressOfNpy(at);
  const { box, body } = panel(title, [`${value.dtype} [${value.shape.join(", ")}] `,
    strides[0] * strides[1] > 1 ? `every ${strides[0]} × ${strides[1]} ` : tiles && tiles.shown < tiles.of ? `the first ${count(tiles.shown)} of ${count(tiles.of)} slices ` : "",
    npy ? h("a", { href: npy, download: `${at.name.replaceAll("/", "_")} ${at.step}.npy`, title: "Save it as a file of numpy" }, ".npy") : ""]);
  const finite = values.filter((each) => each !== null);
  const faulty = finite.filter((each) => !Number.isFinite(each)).length;
  const scale = scaleOf(finite, true);
  if (value.image && !value.slice) body.append(h("img", { class: "image", src: value.image, alt: title }));
  else if (finite.every((each) => each === 0)) body.append(note("All elements here are 0."));
  else if (faulty < finite.length) body.append(legend(scale, "", number, [faulty > 0 && { kind: "nonfinite", label: "NaN or infinity" }]), picture(value, scale));
  if (value.shape.length > 2) body.append(slicer(value));
  if (faulty && faulty !== extremes?.nanCount) body.append(h("div", { class: "bad" }, `${counted(faulty, "element")} here NaN or infinite`));
  if (extremes) {
    const { min, max, nan, nanCount } = extremes;
    const place = (/** @type {number[]} */ where) => `at [${where.join(", ")}]`;
    body.append(h("div", { class: "quiet" },
      min && `min ${number(min.value)} ${place(min.index)}`, min && max && " · ", max && `max ${number(max.value)} ${place(max.index)}`,
      min && nanCount > 0 && " · ", nanCount > 0 && bad(`${counted(nanCount, "element")} NaN or infinite${nan ? `, first NaN ${place(nan)}` : ""}`)));
  }
  return box;
}

/** Return a picture with one block an element. @param {Value} value @param {Scale} scale */
function picture(value, scale) {
  const { rows, columns, values } = value;
  let at = [0, -1]; // row and column of the keyboard
  const canvas = h("canvas", { class: "image", width: columns, height: rows, tabindex: 0, role: "application", "aria-label": `${rows} × ${columns} elements: arrow keys move`,
    onpointerleave: () => tooltip(null), onblur: () => tooltip(null),
    onpointermove: ({ offsetX, offsetY, clientX, clientY }) =>
      say([Math.floor((offsetY / canvas.clientHeight) * rows), Math.floor((offsetX / canvas.clientWidth) * columns)], clientX, clientY),
    onkeydown: (event) => {
      const { key } = event;
      const down = Number(key === "ArrowDown") - Number(key === "ArrowUp");
      if (event.ctrlKey || event.metaKey || event.altKey || !(down || key in MOVES)) return;
      at = [within(at[0] + down, rows), within(at[1] + (MOVES[key] ?? 0), columns)];
      const { left, top, width, height } = canvas.getBoundingClientRect();
      say(at, left + ((at[1] + 0.5) / columns) * width, top + ((at[0] + 0.5) / rows) * height);
      event.preventDefault();
    } });
  /** Explain an element. @param {number[]} where @param {number} x @param {number} y */
  function say([row, column], x, y) {
    const each = within(row, rows) === row && within(column, columns) === column ? values[row * columns + column] : null;
    tooltip(each === null ? null : { title: `[${placeOf(value, row, column).join(", ")}]`, rows: [["value", number(each)]] }, x, y);
  }
  const context = penOf(canvas);
  const image = context.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const palette = lookup(scale.kind);
  values.forEach((each, i) => { if (each !== null) pixels[i] = Number.isFinite(each) ? palette[indexOf(scale, each)] : pixelOf(NOT_FINITE); });
  context.putImageData(image, 0, 0);
  const block = Math.max(1, Math.min(BLOCK, Math.floor((innerWidth >= 2200 ? 720 : 360) / columns), Math.floor(520 / rows)));
  const side = (/** @type {number} */ blocks) => `${Math.max(blocks * block, Math.min(blocks * BLOCK, 120))}px`; // few in a row are wide, of many rows, too
  Object.assign(canvas.style, { width: side(columns), height: side(rows) });
  return canvas;
}

/** Return the index of the element at a place of the picture. @param {Value} value @param {number} row @param {number} column */
function placeOf({ shape, tiles, slice, strides }, row, column) {
  const inside = [row * strides[0], column * strides[1]];
  if (shape.length < 2) return inside.slice(1);
  if (!tiles) return slice ? slice.split(", ").map((part) => part === ":" ? inside.shift() : part) : inside;
  const [height, width] = shape.slice(-2);
  let tile = Math.floor(row / (height + 1)) * tiles.across + Math.floor(column / (width + 1));
  const outer = shape.slice(0, -2).reverse().map((length) => {
    const at = tile % length;
    tile = Math.floor(tile / length);
    return at;
  });
  return [...outer.reverse(), row % (height + 1), column % (width + 1)];
}

/** Return the field that chooses a slice of two dimensions. @param {Value} value */
function slicer({ shape, slice }) {
  const box = h("input", { type: "search", value: slice, placeholder: [...shape.slice(2).map(() => "0"), ":", ":"].join(", "), "aria-label": "slice",
    title: "Two dimensions and the place in the others, as numpy writes it; empty: all slices", onchange: () => go({ slice: box.value }, REPLACE) });
  return field("slice", [box, quiet(slice ? "" : "all slices")]);
}
