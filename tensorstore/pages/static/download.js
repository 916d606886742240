/** Charts and tables as files: PNG, SVG, CSV. */

import { dashOf, inks, lineColor, penOf } from "./colors.js";
import { h, pathOf, s } from "./dom.js";

const TITLE = 24; // pixels above a chart for its title

/** Let the browser save a file. @param {string} name @param {Blob} blob */
function save(name, blob) {
  const address = URL.createObjectURL(blob);
  h("a", { href: address, download: name.replace(/[^\w.-]+/g, "_") }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** Save rows as CSV; what is missing is empty. @param {string} name without its ending @param {string[]} columns @param {any[][]} rows */
export function saveCsv(name, columns, rows) {
  const cell = (/** @type {any} */ value) => {
    const text = value == null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  save(`${name}.csv`, new Blob([columns, ...rows].map((row) => `${row.map(cell).join(",")}\r\n`), { type: "text/csv" }));
}

/** Return a menu that saves a chart. @param {Plot} plot @param {Chart} chart @param {string} title */
export function chartMenu(plot, chart, title) {
  const button = (/** @type {string} */ text, /** @type {() => void} */ work) =>
    h("button", { onclick: () => { work(); menu.open = false; } }, text);
  const menu = h("details", { class: "menu" }, h("summary", { title: "Save this chart", "aria-label": `save ${title}` }, "↓"),
    h("div", {}, button("PNG", () => savePng(plot, title)), button("SVG", () => save(`${title}.svg`, new Blob([svgOf(plot, chart, title)], { type: "image/svg+xml" }))),
      button("CSV", () => saveCsv(title, ...tableOf(chart)))));
  return menu;
}

/** Return a chart's numbers as a table. @param {Chart} chart @returns {[string[], any[][]]} */
function tableOf(chart) {
  const unit = chart.unit === "number" ? "x" : chart.unit === "step" ? "step" : "seconds";
  return [[unit, ...chart.lines.map(({ label }) => label)],
    Array.from(chart.x, (x, i) => [x, ...chart.lines.map(({ values }) => values[i])])];
}

/** @param {Plot} plot @param {string} title */
function savePng(plot, title) {
  const source = /** @type {HTMLCanvasElement} */ (plot.ctx.canvas);
  const ratio = devicePixelRatio || 1;
  const canvas = h("canvas", { width: source.width, height: source.height + TITLE * ratio });
  const context = penOf(canvas);
  const style = getComputedStyle(document.body);
  context.fillStyle = style.backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = style.color;
  context.font = `600 ${13 * ratio}px system-ui, sans-serif`;
  context.fillText(title, 8 * ratio, 16 * ratio);
  context.drawImage(source, 0, TITLE * ratio);
  canvas.toBlob((blob) => blob && save(`${title}.png`, blob));
}

/** Return a chart as SVG. @param {Plot} plot @param {Chart} chart @param {string} title */
function svgOf(plot, chart, title) {
  const style = getComputedStyle(document.body);
  const { text, quiet, line } = inks();
  const { offsetLeft: left, offsetTop: top, clientWidth: width, clientHeight: height } = plot.over;
  const x = (/** @type {number} */ value) => left + plot.valToPos(value, "x");
  const y = (/** @type {number} */ value) => top + plot.valToPos(value, "y");
  const parts = [s("rect", { y: -TITLE, width: "100%", height: "100%", fill: style.backgroundColor }), s("text", { x: 8, y: -8, "font-weight": 600, "font-size": 13, fill: text }, title)];
  plot.axes.forEach((axis, i) => (axis._splits ?? []).forEach((/** @type {number} */ at, /** @type {number} */ j) => {
    const label = axis._values?.[j];
    if (at === null || !label) return;
    parts.push(s("path", { d: i ? `M${left} ${y(at)}h${width}` : `M${x(at)} ${top}v${height}`, stroke: line }),
      s("text", { ...(i ? { x: left - 6, y: y(at) + 4, "text-anchor": "end" } : { x: x(at), y: top + height + 18, "text-anchor": "middle" }), fill: quiet }, String(label)));
  }));
  chart.lines.forEach((each, i) => {
    const points = plot.data[i + 1].flatMap((/** @type {any} */ value, /** @type {number} */ at) => {
      const px = x(plot.data[0][at]);
      return value === undefined ? [] : [value === null || px < left - 1 || px > left + width + 1 ? null : [px, y(value)]];
    });
    parts.push(s("path", { d: pathOf(points), fill: "none", stroke: lineColor(each.color ?? i), "stroke-width": each.width ?? 1.5, "stroke-opacity": each.alpha ?? 1, "stroke-linecap": "round",
      "stroke-dasharray": dashOf(each.color ?? i).join(" ") }, s("title", {}, each.label)));
  });
  return new XMLSerializer().serializeToString(s("svg", { width: plot.width, height: plot.height + TITLE, viewBox: `0 ${-TITLE} ${plot.width} ${plot.height + TITLE}`, "font-family": "system-ui, sans-serif", "font-size": 11 }, ...parts));
}
