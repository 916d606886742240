/** A heat map of rows × steps. */

import { NOT_FINITE, css, indexOf, inks, lookup, penOf, pixelOf, scaleOf, sized } from "./colors.js";
import { h, quiet } from "./dom.js";
import { count, firstOf, printable, ticks, within } from "./format.js";

/** What a cell holds: a value, none in a complete step, NaN or an infinity, none in a missing step. */
export const [VALUE, NOTHING, NONFINITE, MISSING] = [0, 1, 2, 3];

const AXIS = 26; // pixels below for the steps
const TOP = 14; // pixels above for the marks of findings

export class Heatmap {
  /** Put a heat map into an element. @param {HTMLElement} parent has a height @param {OnHeatmap} on */
  constructor(parent, on) {
    this.on = on;
    this.canvas = h("canvas", { class: "heatmap", tabindex: "0", role: "application",
      "aria-label": "Heat map of tensors by steps. Arrow keys move, Enter opens, plus and minus zoom, 0 shows all.", ...this.listeners() });
    this.context = penOf(this.canvas);
    this.ink = inks();
    this.parent = parent;
    parent.append(this.canvas);
    /** @type {Model} empty until the first is shown */
    this.model = { rows: [], starts: [], end: 0, values: new Float64Array(), flags: new Uint8Array(), scale: scaleOf([]), marks: [] };
    /** @type {Seen} */
    this.window = { step0: 0, step1: 1, row0: 0, row1: 1 };
    /** @type {Cell | null} */
    this.cursor = null;
    /** @type {Painted | null} */
    this.painted = null;
    this.frame = 0;
    this.labeled = 140; // pixels of the longest label
    /** @type {Drag | null} */
    this.drag = null;
    new ResizeObserver(() => this.redraw()).observe(parent);
  }

  /** Show a model, at the same place if it has as many rows. @param {Model} model @param {Partial<Seen>} [window] */
  show(model, window = {}) {
    const rows = model.rows.length;
    const { row0, row1 } = this.model.rows.length === rows ? this.window : { row0: 0, row1: rows };
    this.model = model;
    this.window = { step0: model.starts[0] ?? 0, step1: model.end, row0, row1, ...window };
    if (this.cursor && this.cursor.row >= rows) this.cursor = null;
    this.redraw();
  }

  redraw() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.draw());
  }

  /** Return the place of the cells inside the canvas, in pixels. */
  get plot() {
    const { clientWidth: width, clientHeight: height } = this.parent;
    const left = Math.round(Math.max(60, Math.min(this.labeled + 10, width * 0.4)));
    return { left, top: TOP, width: Math.max(1, width - left - 8), height: Math.max(1, height - TOP - AXIS) };
  }

  /** Return the height of a row. */
  get tall() {
    return this.plot.height / (this.window.row1 - this.window.row0);
  }

  draw() {
    const { model, canvas, context } = this;
    const { clientWidth: width, clientHeight: height } = this.parent;
    if (!model.end || !width || !height) return;
    sized(canvas, width, height);
    this.ink = inks();
    this.labeled = Math.max(...model.rows.map((row) => indentOf(row) + context.measureText(symbolOf(row) + printable(row.text)).width), 0);
    canvas.dataset.left = String(this.plot.left);
    this.drawCells(devicePixelRatio || 1);
    this.drawLabels();
    this.drawSteps();
    this.drawMarks();
    this.drawCursor();
  }

  /** Draw the cells, which are painted again if more than the cursor changed. @param {number} ratio device pixels a pixel */
  drawCells(ratio) {
    const { context, plot, ink, model } = this;
    const [width, height] = [Math.round(plot.width * ratio), Math.round(plot.height * ratio)];
    if (!model.rows.length || !model.starts.length) return;
    const key = JSON.stringify([this.window, width, height, ink.ground, ratio]);
    if (this.painted?.key !== key || this.painted.model !== model) {
      const canvas = new OffscreenCanvas(width, height);
      const target = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
      target.putImageData(this.paint(target.createImageData(width, height), ratio), 0, 0);
      this.painted = { key, model, canvas };
    }
    context.drawImage(this.painted.canvas, plot.left, plot.top, plot.width, plot.height);
    this.drawSeparators();
  }

  /** Paint the cells into an image and return it. @param {ImageData} image @param {number} ratio */
  paint(image, ratio) {
    const { flags } = this.model;
    const { width, height } = image;
    const pixels = new Uint32Array(image.data.buffer);
    const [ground, hole] = [pixelOf(this.ink.ground), pixelOf(this.ink.hole)];
    const colors = this.colorsOfCells(ground);
    const place = this.columnsOfPixels(width);
    const [period, stroke] = [Math.round(6 * ratio), Math.round(2 * ratio)];
    const { row0, row1 } = this.window;
    for (let y = 0; y < height; y++) {
      const first = Math.floor(row0 + (y / height) * (row1 - row0));
      const last = Math.max(first, Math.ceil(row0 + ((y + 1) / height) * (row1 - row0)) - 1);
      for (let x = 0; x < width; x++) {
        const at = this.worst(first, last, place[2 * x], place[2 * x + 1]);
        if (at < 0) pixels[y * width + x] = ground;
        else if (flags[at] === MISSING) pixels[y * width + x] = (x + y) % period < stroke ? hole : ground;
        else pixels[y * width + x] = colors[at];
      }
    }
    return image;
  }

  /** Return the pixel of each cell. @param {number} ground pixel of a cell without a value */
  colorsOfCells(ground) {
    const { values, flags, scale } = this.model;
    const palette = lookup(scale.kind);
    const notFinite = pixelOf(NOT_FINITE);
    const colors = new Uint32Array(values.length).fill(ground);
    for (let i = 0; i < colors.length; i++) {
      if (flags[i] === VALUE) colors[i] = palette[indexOf(scale, values[i])];
      else if (flags[i] === NONFINITE) colors[i] = notFinite;
    }
    return colors;
  }

  /** Return the first and last column of each pixel, -1 for none. @param {number} width */
  columnsOfPixels(width) {
    const { model, window: { step0, step1 } } = this;
    const place = new Int32Array(2 * width);
    for (let x = 0; x < width; x++) {
      place[2 * x] = this.columnAt(step0 + (x / width) * (step1 - step0));
      const next = step0 + ((x + 1) / width) * (step1 - step0);
      place[2 * x + 1] = Math.max(place[2 * x], next > model.end ? place[2 * x] : this.columnAt(next - 1e-9));
    }
    return place;
  }

  /** Return the column that holds a step, -1 if none does. @param {number} step */
  columnAt(step) {
    const { starts, end } = this.model;
    if (!starts.length || step < starts[0] || step >= end) return -1;
    return firstOf(0, starts.length, (at) => starts[at] > step) - 1;
  }

  /** Return the most telling cell of a pixel, so that no spike disappears. @param {number} row0 @param {number} row1 included @param {number} column0 @param {number} column1 included */
  worst(row0, row1, column0, column1) {
    const model = this.model;
    const columns = model.starts.length;
    if (column0 < 0 || row0 < 0 || row0 >= model.rows.length) return -1;
    if (row0 === row1 && column0 === column1) return row0 * columns + column0;
    let [found, size] = [-1, -1];
    for (let row = row0; row <= Math.min(row1, model.rows.length - 1); row++) {
      for (let column = column0; column <= column1; column++) {
        const at = row * columns + column;
        const flag = model.flags[at];
        const weight = flag === NONFINITE ? Infinity : flag === MISSING ? -0.25 : flag === NOTHING ? -0.5
          : Math.abs(model.values[at]);
        if (found < 0 || weight > size) [found, size] = [at, weight];
      }
    }
    return found;
  }

  drawSeparators() {
    const { context, plot, ink, tall, window: { row0, row1 } } = this;
    if (tall < 6) return;
    context.fillStyle = ink.ground;
    for (let row = Math.ceil(row0); row <= row1; row++) {
      context.fillRect(plot.left, this.yOf(row) - 0.5, plot.width, tall > 14 ? 1 : 0.5);
    }
  }

  drawLabels() {
    const { context, plot, ink, model, tall, window: { row0, row1 } } = this;
    const every = Math.max(1, Math.ceil((innerWidth >= 2200 ? 16 : 13) / tall));
    context.textBaseline = "middle";
    context.textAlign = "left";
    const visible = [];
    for (let row = Math.floor(row0); row < Math.min(row1, model.rows.length); row++) visible.push(row);
    if (this.cursor) visible.push(this.cursor.row); // last, so that it lies on top
    for (const row of visible) {
      const y = this.yOf(row + 0.5);
      if (y < plot.top || y > plot.top + plot.height || (row % every && this.cursor?.row !== row)) continue;
      const { text, kind } = model.rows[row];
      const indent = indentOf(model.rows[row]);
      if (every > 1 && this.cursor?.row === row) {
        context.fillStyle = ink.ground; // over the labels of its neighbors
        context.fillRect(0, y - 10, plot.left - 2, 20);
      }
      context.fillStyle = this.cursor?.row === row ? ink.accent : kind === "tensor" ? ink.text : ink.quiet;
      context.fillText(symbolOf(model.rows[row]) + fitting(context, printable(text), plot.left - indent - 8), indent + 2, y);
    }
  }

  drawSteps() {
    const { context, plot, ink } = this;
    const { step0, step1 } = this.window;
    context.fillStyle = ink.quiet;
    context.textBaseline = "top";
    context.textAlign = "center";
    const bottom = plot.top + plot.height;
    for (const step of ticks(step0, step1 - 1, Math.floor(plot.width / 90), 1)) {
      const x = this.xOf(step + 0.5);
      context.fillRect(x, bottom, 1, 4);
      const half = context.measureText(count(step)).width / 2;
      context.fillText(count(step), Math.min(x, plot.left + plot.width + 8 - half), bottom + 7); // whole, also at the end
    }
    context.textAlign = "right";
    context.fillText("step", plot.left - 16, bottom + 7);
  }

  /** Return the pixel at which a step lies. @param {number} step */
  xOf(step) {
    const { window: { step0, step1 }, plot } = this;
    return plot.left + ((step - step0) / (step1 - step0)) * plot.width;
  }

  /** Return the pixel at which a row begins. @param {number} row */
  yOf(row) {
    const { window: { row0, row1 }, plot } = this;
    return plot.top + ((row - row0) / (row1 - row0)) * plot.height;
  }

  drawMarks() {
    const { context, ink, model, tall } = this;
    const { step0, step1, row0, row1 } = this.window;
    const radius = Math.max(2, Math.min(6, tall / 2 - 2.5)); // of a ring in its row
    for (const { row, step } of model.marks) {
      if (step < step0 || step >= step1) continue;
      const x = this.xOf(step + 0.5);
      context.fillStyle = ink.mark;
      context.beginPath();
      context.moveTo(x - 5, 2);
      context.lineTo(x + 5, 2);
      context.lineTo(x, TOP - 2);
      context.fill();
      if (row < row0 || row >= row1) continue;
      const y = this.yOf(row + 0.5);
      // A ring in two colors stands out from every color of a cell.
      context.lineWidth = 5;
      context.strokeStyle = ink.ground;
      context.beginPath();
      context.arc(x, y, radius, 0, 2 * Math.PI);
      context.stroke();
      context.lineWidth = 2;
      context.strokeStyle = ink.text;
      context.stroke();
    }
  }

  drawCursor() {
    const { context, plot, ink, model, tall } = this;
    if (!this.cursor) return;
    const { row, column } = this.cursor;
    const y = this.yOf(row);
    const from = column < 0 ? plot.left : this.xOf(model.starts[column]);
    const to = column < 0 ? plot.left + plot.width
      : this.xOf(column + 1 < model.starts.length ? model.starts[column + 1] : model.end);
    context.strokeStyle = ink.text;
    context.lineWidth = 1.5;
    context.strokeRect(from - 0.5, y - 0.5, Math.max(3, to - from), Math.max(3, tall));
  }

  /** Return the cell at a pixel of the canvas. @param {number} x @param {number} y */
  cellAt(x, y) {
    const { model, plot } = this;
    if (y < plot.top || y >= plot.top + plot.height) return null;
    const { row0, row1, step0, step1 } = this.window;
    const row = Math.floor(row0 + ((y - plot.top) / plot.height) * (row1 - row0));
    if (row < 0 || row >= model.rows.length) return null;
    if (x < plot.left) return { row, column: -1 };
    const column = this.columnAt(step0 + ((x - plot.left) / plot.width) * (step1 - step0));
    return column < 0 ? null : { row, column };
  }

  /** Return the mark at a pixel of the canvas. @param {number} x @param {number} y */
  markAt(x, y) {
    return this.model.marks.find(({ row, step }) => Math.abs(this.xOf(step + 0.5) - x) <= 7 && (y < TOP || Math.abs(this.yOf(row + 0.5) - y) < 8));
  }

  /** @returns {Attributes} */
  listeners() {
    return {
      onpointerdown: ({ offsetX: x, offsetY: y, pointerId }) => {
        this.drag = { x, y, window: this.window, moved: false };
        this.canvas.setPointerCapture(pointerId);
      },
      onpointermove: (event) => this.pointerMoved(event),
      onpointercancel: () => { this.drag = null; },
      onpointerup: (event) => this.pointerUp(event),
      onpointerleave: () => this.hover(null, 0, 0),
      ondblclick: () => this.reset(),
      onkeydown: (event) => this.keyDown(event),
      onwheel: (event) => {
        event.preventDefault();
        const factor = Math.exp(Math.sign(event.deltaY || event.deltaX) * 0.25);
        const { plot } = this;
        if (event.shiftKey || event.offsetX < plot.left) this.zoom("row", factor, (event.offsetY - plot.top) / plot.height);
        else this.zoom("step", factor, (event.offsetX - plot.left) / plot.width);
      },
    };
  }

  /** @param {PointerEvent} event */
  pointerMoved({ offsetX, offsetY, clientX, clientY }) {
    const { drag, plot } = this;
    if (!drag) return this.hover(this.cellAt(offsetX, offsetY), clientX, clientY);
    const [dx, dy] = [offsetX - drag.x, offsetY - drag.y];
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    drag.moved = true;
    const { window: from } = drag;
    const steps = (-dx / plot.width) * (from.step1 - from.step0);
    const rows = (-dy / plot.height) * (from.row1 - from.row0);
    this.move({ step0: from.step0 + steps, step1: from.step1 + steps, row0: from.row0 + rows, row1: from.row1 + rows });
  }

  /** @param {PointerEvent} event */
  pointerUp({ offsetX, offsetY }) {
    const { drag } = this;
    this.drag = null;
    if (!drag || drag.moved) return;
    const [mark, cell] = [this.markAt(offsetX, offsetY), this.cellAt(offsetX, offsetY)];
    if (mark) mark.onopen();
    else if (cell) this.on.open(cell);
  }

  /** Frame a cell, or none. @param {Cell | null} cell */
  point(cell) {
    this.cursor = cell && cell.row >= 0 ? cell : null;
    this.redraw();
  }

  /** @param {Cell | null} cell @param {number} x @param {number} y */
  hover(cell, x, y) {
    this.point(cell);
    this.on.hover(cell, x, y);
  }

  /** @param {KeyboardEvent} event */
  keyDown(event) {
    const { model } = this;
    if (!model.end || event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = /** @type {Record<string, [number, number]>} */ ({ ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
      Home: [-Infinity, 0], End: [Infinity, 0] });
    const at = this.cursor ?? { row: Math.floor(this.window.row0) - 1, column: 0 };
    if (event.key in moves) {
      const [down, right] = moves[event.key];
      const cell = { row: within(at.row + down, model.rows.length), column: within(at.column + right, model.starts.length) };
      const box = this.canvas.getBoundingClientRect();
      this.hover(cell, box.left + this.xOf(model.starts[cell.column]), box.top + this.yOf(cell.row + 1));
    } else if (event.key === "Enter" && this.cursor) this.on.open(this.cursor);
    else if ("+=-".includes(event.key)) this.zoom("step", event.key === "-" ? 1.5 : 1 / 1.5);
    else if (event.key === "0") this.reset();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {"step" | "row"} what @param {number} factor less than 1 shows more detail @param {number} [at] 0 to 1, the place that stays */
  zoom(what, factor, at = 0.5) {
    const [low, high] = [this.window[`${what}0`], this.window[`${what}1`]];
    const span = Math.max(what === "step" ? 4 : 3, (high - low) * factor);
    const fixed = low + at * (high - low);
    this.move({ ...this.window, [`${what}0`]: fixed - at * span, [`${what}1`]: fixed + (1 - at) * span });
  }

  reset() {
    this.move({ step0: 0, step1: Infinity, row0: 0, row1: this.model.rows.length });
  }

  /** @param {Seen} window */
  move(window) {
    const rows = this.model.rows.length;
    const span = Math.min(rows, window.row1 - window.row0);
    const row0 = Math.max(0, Math.min(rows - span, window.row0));
    this.window = { ...window, row0, row1: row0 + span };
    this.on.move(this.window);
    if (Number.isFinite(this.window.step1)) this.redraw();
  }
}

/** @param {Row} row */
const indentOf = ({ level }) => Math.min(level, 6) * 10;

/** @param {Row} row */
const symbolOf = ({ kind }) => kind === "open" ? "▾ " : kind === "folded" ? "▸ " : "";

/** Return a name or, if it does not fit, its telling end. @param {CanvasRenderingContext2D} context @param {string} text @param {number} room pixels */
function fitting(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  return `…${text.slice(firstOf(1, text.length, (at) => context.measureText(`…${text.slice(at)}`).width <= room))}`;
}

/** Return a legend: a strip of colors, and the other marks. @type {Legend} */
export function legend(scale, title, format, others) {
  const strip = h("canvas", { class: "strip", width: 128, height: 10 });
  const context = penOf(strip);
  const palette = lookup(scale.kind);
  for (let x = 0; x < 128; x++) {
    const value = scale.low + (x / 127) * (scale.high - scale.low);
    context.fillStyle = css(palette[scale.neutral && Math.abs(value) < scale.neutral ? 128 : 2 * x]);
    context.fillRect(x, 0, 1, 10);
  }
  return h("div", { class: "legend" },
    h("span", { class: "legend-title" }, title),
    h("span", {}, format(scale.low)), strip, h("span", {}, format(scale.high)),
    scale.log && quiet("(log scale)"),
    ...others.map((each) => each && h("span", { class: "swatch" }, h("i", { class: each.kind }), each.label)));
}
