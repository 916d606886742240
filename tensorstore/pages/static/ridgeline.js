/** Histograms over steps, the newest in front. */

import { spanOf } from "./chart.js";
import { inks, lineColor, sized } from "./colors.js";
import { h } from "./dom.js";
import { count, notedAlike, ticks } from "./format.js";

/** Return the histograms for one axis, without those twenty times as wide as most. @param {Histogram[]} histograms */
export function comparable(histograms) {
  const known = histograms.filter(({ edges }) => edges.length > 1);
  const width = (/** @type {Histogram} */ { edges }) => edges[edges.length - 1] - edges[0];
  const widths = known.map(width).sort((a, b) => a - b);
  const widest = 20 * (widths[widths.length >> 1] ?? 0);
  return known.filter((histogram) => width(histogram) <= widest);
}

/** Return a canvas with ridges, the oldest on top. @type {Ridgelines} */
export function ridgelines(histograms, width, height, chosen) {
  const canvas = h("canvas", { role: "img", "aria-label": `Histograms of ${histograms.length} steps` });
  const context = sized(canvas, width, height);
  const first = histograms[0].edges[0];
  const [low, high] = spanOf(histograms.flatMap(({ edges }) => Array.from(edges))) ?? [first - 0.5, first + 0.5];
  const plot = { left: 48, top: 34, width: width - 56, height: height - 60 };
  const x = (/** @type {number} */ value) => plot.left + ((value - low) / (high - low)) * plot.width;
  const gap = plot.height / histograms.length;
  const tall = Math.min(90, plot.top + gap - 2); // the oldest, too, is inside
  const top = Math.max(...histograms.flatMap(({ counts }) => density(counts)), 1e-300);
  const { quiet, ground, line } = inks();
  context.textAlign = "center";
  const marks = ticks(low, high, Math.floor(width / 90));
  const texts = notedAlike(marks);
  marks.forEach((value, i) => {
    context.fillStyle = line;
    context.fillRect(x(value), plot.top, 0.5, plot.height);
    context.fillStyle = quiet;
    context.fillText(texts[i], x(value), height - 8);
  });
  const labeled = Math.max(1, Math.ceil(14 / gap));
  histograms.forEach((histogram, i) => {
    const base = plot.top + (i + 1) * gap;
    const marked = histogram.step === chosen;
    trace(context, histogram, x, base, tall / top);
    const color = lineColor(marked ? 5 : 0);
    context.fillStyle = `color-mix(in srgb, ${color} ${marked ? 75 : 25 + (45 * i) / histograms.length}%, ${ground})`;
    context.fill();
    context.lineWidth = marked ? 1.6 : 0.8;
    context.strokeStyle = marked ? color : ground;
    context.stroke();
    if ((histograms.length - 1 - i) % labeled && !marked) return;
    context.fillStyle = marked ? color : quiet;
    context.textAlign = "right";
    context.clearRect(0, base - 7, plot.left - 1, 14);
    context.fillText(count(histogram.step), plot.left - 6, base + 3);
  });
  return canvas;
}

/** @param {CanvasRenderingContext2D} context @param {Histogram} histogram @param {(value: number) => number} x @param {number} base @param {number} scale */
function trace(context, { edges, counts }, x, base, scale) {
  const densities = density(counts);
  context.beginPath();
  context.moveTo(x(edges[0]), base);
  for (let i = 0; i < densities.length; i++) {
    const y = base - densities[i] * scale;
    context.lineTo(x(edges[i]), y);
    context.lineTo(x(edges[i + 1]), y);
  }
  context.lineTo(x(edges[edges.length - 1]), base);
  context.closePath();
}

/** Return the share of values in each bin. @param {ArrayLike<number>} counts */
function density(counts) {
  const all = Array.from(counts);
  const total = all.reduce((sum, each) => sum + each, 0) || 1;
  return all.map((each) => each / total);
}
