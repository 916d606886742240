/** Scalars: curves of many runs, the smooth one over its raw shadow. */

import { loadScalarNames, loadScalars } from "../api.js";
import { AXES, axisOf, draw, panel } from "../chart.js";
import { LINES } from "../colors.js";
import { checkbox, fill, h, select, table, textbox } from "../dom.js";
import { count, number, printable } from "../format.js";
import { smooth } from "../smooth.js";
import { go, link } from "../state.js";

const MOST_PANELS = 24;
const MOST_RUNS = 16;

/** @type {import("../app.js").ViewMaker} */
export function scalars(root, page) {
  const tools = h("div", { class: "tools" });
  const body = h("div", { class: "panels" });
  root.append(tools, body);

  /** @param {State} now */
  async function show(now) {
    const chosen = chosenRuns(page.info, now);
    drawTools(now, chosen);
    const strange = named(now).filter((name) => !page.info.runs.some((run) => run.name === name));
    if (strange.length) tools.append(h("span", { class: "error" }, `Not here: ${strange.map(printable).join(", ")}`));
    const names = (await loadScalarNames(chosen)).filter((name) => name.toLowerCase().includes((now.q ?? "").toLowerCase()));
    if (!names.length) {
      fill(body, h("p", { class: "message" }, now.q ? "No scalar has such a name." : "No scalars were saved. hook.save_scalar(name, value) saves one."));
      return;
    }
    const curves = await loadScalars({ runs: chosen, names: names.slice(0, MOST_PANELS), points: 800 });
    fill(body);
    for (const name of names.slice(0, MOST_PANELS)) drawPanel(name, curves.filter((curve) => curve.name === name && curve.steps.length), chosen, now);
    if (names.length > MOST_PANELS) body.append(h("p", { class: "quiet" }, `${count(names.length - MOST_PANELS)} more; search by name to see them.`));
    drawTable(curves, chosen, now);
  }

  /**
   * @param {State} now
   * @param {string[]} chosen
   */
  function drawTools(now, chosen) {
    const weight = Number(now.smooth ?? 0.6);
    const slider = h("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: weight, "aria-label": "smoothing",
      onchange: () => go({ smooth: slider.value }, { replace: true }) });
    const keys = [...new Set(page.info.runs.flatMap((run) => Object.keys(run.metadata)))];
    fill(tools,
      h("label", { class: "field", title: "Exponential moving average. The raw curve stays behind it." }, h("span", {}, "smoothing"), slider, h("span", {}, weight.toFixed(2))),
      select("x axis", [["step", "step of the mode"], ["global", "global step"], ["time", "time"]].map(([value, text]) => ({ value, text })), now.x ?? "step", (x) => go({ x })),
      checkbox("log x", now.logx === "1", (on) => go({ logx: on ? "1" : null })),
      select("y axis", AXES, now.logy ?? "", (logy) => go({ logy })),
      keys.length > 0 && page.info.runs.length > 1 && select("colour by", [{ value: "", text: "run" }, ...keys.map((key) => ({ value: key, text: printable(key) }))], now.group ?? "", (group) => go({ group }),
        "Runs with the same value of this metadata get the same colour."),
      textbox("find", now.q ?? "", (q) => go({ q }, { replace: true }), { placeholder: "part of a name" }));
    if (page.info.runs.length < 2) return;
    for (const run of page.info.runs.slice(0, 40)) {
      const box = h("label", { class: "field check" },
        h("input", { type: "checkbox", checked: chosen.includes(run.name), onchange: () => go({ runs: JSON.stringify(chosen.includes(run.name) ? chosen.filter((each) => each !== run.name) : [...chosen, run.name]) }) }),
        h("span", { class: "name" }, printable(run.name)));
      box.style.color = chosen.includes(run.name) ? LINES[colorOf(run.name, chosen, now) % LINES.length] : "";
      tools.append(box);
    }
  }

  /**
   * @param {string} run
   * @param {string[]} chosen
   * @param {State} now
   */
  function colorOf(run, chosen, now) {
    if (!now.group) return chosen.indexOf(run);
    const value = (/** @type {string} */ name) => JSON.stringify(page.info.runs.find((each) => each.name === name)?.metadata[now.group]);
    return [...new Set(chosen.map(value))].indexOf(value(run));
  }

  /**
   * @param {string} name
   * @param {Curve[]} curves
   * @param {string[]} chosen
   * @param {State} now
   */
  function drawPanel(name, curves, chosen, now) {
    if (!curves.length) return;
    const { box, body: inside } = panel(h("a", { class: "name", href: link({ view: "tensor", name, run: curves[0].run, step: null }) }, printable(name)));
    body.append(box);
    const weight = Number(now.smooth ?? 0.6);
    const xs = curves.map((curve) => now.x === "time" ? curve.times.map((each) => each / 1000) : now.x === "global" ? curve.globals : curve.steps);
    const x = [...new Set(xs.flatMap((each) => Array.from(each)))].sort((a, b) => a - b);
    const place = new Map(x.map((each, i) => [each, i]));
    const spread = (/** @type {ArrayLike<number>} */ at, /** @type {(number | null)[]} */ values) => {
      /** @type {(number | null | undefined)[]} */
      const line = new Array(x.length).fill(undefined);
      values.forEach((value, i) => { line[/** @type {number} */ (place.get(at[i]))] = value; });
      return line;
    };
    /** @type {import("../chart.js").Line[]} */
    const lines = [];
    /** @type {[number, number, number][]} */
    const bands = [];
    curves.forEach((curve, i) => {
      const color = colorOf(curve.run, chosen, now);
      const label = `${curves.length > 1 || page.info.runs.length > 1 ? curve.run : name}${curve.mode === "TRAIN" || curve.mode === "GLOBAL" ? "" : ` ${curve.mode}`}`;
      const dashed = curve.mode === "EVAL" || curve.mode === "PREDICT";
      if (curve.min.some((value, at) => !Object.is(value, curve.max[at]))) {
        bands.push([lines.length, lines.length + 1, color]);
        lines.push({ label: `${label} max`, values: spread(xs[i], curve.max), color, width: 0.3, alpha: 0.4, quiet: true },
          { label: `${label} min`, values: spread(xs[i], curve.min), color, width: 0.3, alpha: 0.4, quiet: true });
      }
      if (weight > 0 && curve.mean.length > 2) {
        lines.push({ label: `${label} raw`, values: spread(xs[i], curve.mean), color, width: 1, alpha: 0.3, quiet: true });
        lines.push({ label, values: spread(xs[i], smooth(curve.mean, weight)), color, width: 1.75, dash: dashed });
      } else lines.push({ label, values: spread(xs[i], curve.mean), color, width: 1.5, points: curve.mean.length < 40, dash: dashed });
    });
    draw(inside, { x, lines, bands, unit: now.x === "time" ? "time" : "step", logX: now.logx === "1" && now.x !== "time", logY: axisOf(now), height: 220,
      onclick: (at) => { if (now.x !== "time" && now.x !== "global") go({ view: "tensor", name, step: at, run: curves[0].run, mode: curves[0].mode }); } });
    const bad = curves.reduce((sum, curve) => sum + curve.nonfinite, 0);
    if (bad) inside.append(h("p", { class: "bad" }, `NaN or infinite at ${count(bad)} steps`));
  }

  /**
   * @param {Curve[]} curves
   * @param {string[]} chosen
   * @param {State} now
   */
  function drawTable(curves, chosen, now) {
    const { box, body: inside } = panel("Last and best values", "over the whole run", true);
    body.append(box);
    const low = (/** @type {Curve} */ curve) => Math.min(...finite(curve.min));
    const high = (/** @type {Curve} */ curve) => Math.max(...finite(curve.max));
    inside.append(table({
      rows: curves.filter((curve) => curve.steps.length), sort: now.sort ?? "", onsort: (sort) => go({ sort }, { replace: true }),
      columns: [
        { title: "run", key: (curve) => curve.run, cell: (curve) => swatch(printable(curve.run), colorOf(curve.run, chosen, now)) },
        { title: "scalar", key: (curve) => curve.name, cell: (curve) => h("span", { class: "name" }, printable(curve.name)) },
        { title: "mode", key: (curve) => curve.mode, cell: (curve) => curve.mode },
        { title: "last", number: true, key: (curve) => curve.last.value, cell: (curve) => number(curve.last.value) },
        { title: "at step", number: true, key: (curve) => curve.last.step, cell: (curve) => count(curve.last.step) },
        { title: "smallest", number: true, key: low, cell: (curve) => number(low(curve)) },
        { title: "largest", number: true, key: high, cell: (curve) => number(high(curve)) },
      ],
    }));
  }

  return { show };
}

/** @param {(number | null)[]} values */
function finite(values) {
  return /** @type {number[]} */ (values.filter((value) => value !== null && Number.isFinite(value)));
}

/**
 * @param {string} text
 * @param {number} color
 */
function swatch(text, color) {
  const mark = h("span", {}, "● ");
  mark.style.color = LINES[color % LINES.length];
  return h("span", { class: "name" }, mark, text);
}

/**
 * Return the runs to draw: those that the state names, or the first few.
 * @param {Info} info
 * @param {State} now
 */
function chosenRuns(info, now) {
  const known = info.runs.map(({ name }) => name);
  const wanted = named(now).filter((name) => known.includes(name));
  return wanted.length ? wanted : known.slice(0, MOST_RUNS);
}

/** @param {State} now @returns {string[]} */
function named(now) {
  return JSON.parse(now.runs ?? "[]");
}
