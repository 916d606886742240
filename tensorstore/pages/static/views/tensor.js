/** Tensor: one tensor over steps, its distribution, and its value at a step. */

import { loadHistograms, loadSeries, loadTensor, loadTensorNames, unlessMissing } from "../api.js";
import { AXES, axisOf, draw, panel } from "../chart.js";
import { STATISTICS, choose, chosenRun } from "../choice.js";
import { fill, h, message, quiet, select, steadily, toolbar } from "../dom.js";
import { count, counted, number, size } from "../format.js";
import { comparable, quantilesOf, ridgelines } from "../ridgeline.js";
import { go, link } from "../state.js";
import { valuePanels } from "../value.js";

const RIDGES = 24;
/** What a tensor's name may have before it, and what that is. */
const RELATED = /** @type {Record<string, string>} */ ({ "gradient/": "its gradient", "update/": "its update", "update_ratio/": "its update / itself" });
const QUANTILES = [0.05, 0.25, 0.5, 0.75, 0.95];

/** @type {ViewMaker} */
export function tensor(root, page) {
  const head = toolbar();
  const body = h("div", { class: "panels" });
  root.append(head, body);

  /** @param {State} now */
  async function show(now) {
    const run = chosenRun(page.info, now);
    const names = await loadTensorNames(run.name);
    const name = now.name ?? names[0];
    if (name === undefined) {
      fill(body, message("This run has no tensors yet."));
      return;
    }
    const choice = choose(run, now);
    const about = await loadTensor({ run: run.name, name, mode: choice.mode, worker: choice.worker });
    const steps = about.steps;
    const wanted = now.step === undefined ? steps[steps.length - 1] : Number(now.step);
    const step = nearest(steps, wanted);
    drawHead(run, names, name, choice, about, step, now);
    const from = now.from ? Number(now.from) : null;
    const to = now.to ? Number(now.to) : null;
    const query = { run: run.name, name, mode: choice.mode, worker: choice.worker, from, to };
    const [series, histograms] = await Promise.all([
      loadSeries({ ...query, statistics: about.statistics, points: 500 }),
      loadHistograms({ ...query, count: RIDGES }),
    ]);
    if (!steps.length) {
      fill(body, message(`This tensor has no step of mode ${choice.mode}.`));
      return;
    }
    await steadily(body, () => {
      fill(body);
      return drawAll(series, about.shape?.length === 0 ? [] : histograms, choice, step, now, query);
    });
  }

  /**
   * @param {Series} series
   * @param {Histogram[]} histograms
   * @param {{statistic: string}} choice
   * @param {number | null} step
   * @param {State} now
   * @param {OfTensor} query
   */
  async function drawAll(series, histograms, choice, step, now, query) {
    // A report has all statistics, also those that were not saved of this tensor.
    const saved = series.statistics.filter(({ mean }) => mean.some((value) => value !== null));
    const first = saved.filter(({ statistic }) => statistic === choice.statistic || statistic === "value");
    const others = saved.filter((each) => !first.includes(each));
    for (const each of first) drawSeries(series, each, step, now, true);
    await drawRelated(query, first[0]?.statistic ?? "l2", step, now);
    if (step !== null) await valuePanels(body, { ...query, step }, now);
    drawHistograms(histograms, step, now);
    for (const each of others) drawSeries(series, each, step, now, false);
  }

  /**
   * Draw the same statistic of the tensor's gradient and of its update, as far as they were saved.
   * @param {OfTensor} query
   * @param {string} statistic
   * @param {number | null} step
   * @param {State} now
   */
  async function drawRelated(query, statistic, step, now) {
    const names = await loadTensorNames(query.run);
    for (const [prefix, title] of Object.entries(RELATED)) {
      const name = prefix + query.name;
      if (!names.includes(name)) continue;
      const found = await unlessMissing(loadSeries({ ...query, name, from: now.from ? Number(now.from) : null, to: now.to ? Number(now.to) : null, statistics: [statistic, "value"], points: 500 }));
      if (found instanceof Error) continue;
      const saved = found.statistics.find((each) => each.mean.some((value) => value !== null));
      if (saved) drawSeries(found, saved, step, now, false, title);
    }
  }

  /**
   * @param {Series} series
   * @param {Statistic} one
   * @param {number | null} step
   * @param {State} now
   * @param {boolean} wide
   * @param {string} [of] what else it is a statistic of
   */
  function drawSeries(series, one, step, now, wide, of = "") {
    const banded = one.min.some((value, i) => !Object.is(value, one.max[i]));
    const label = one.statistic === "value" && of ? of : `${STATISTICS[one.statistic] ?? one.statistic}${of && ` of ${of}`}`;
    const { box, body: inside } = panel(label,
      !one.mean.length ? "" : `last ${number(one.last)}${one.nonfinite ? `, NaN or infinite at ${counted(one.nonfinite, "step")}` : ""}`, wide);
    body.append(box);
    draw(inside, {
      x: series.steps, unit: "step", mark: step, logY: axisOf(now), height: wide ? 210 : 150,
      lines: banded
        ? [{ label: `${label}, largest`, values: one.max, width: 0.5, color: 0 }, { label: "smallest", values: one.min, width: 0.5, color: 0 }, { label: "mean", values: one.mean, color: 0 }]
        : [{ label, values: one.mean, color: 0, points: series.steps.length < 60 }],
      bands: banded ? [[0, 1, 0]] : [],
      onclick: (at) => go({ step: Math.round(at) }),
      onrange: (from, to) => go({ from: Math.floor(from), to: Math.ceil(to) }),
    });
  }

  /** @param {Histogram[]} histograms @param {number | null} step @param {State} now */
  function drawHistograms(histograms, step, now) {
    if (!histograms.length) return;
    const chosen = step === null ? null : nearest(histograms.map((each) => each.step), step);
    const drawn = comparable(histograms);
    const wide = histograms.filter((histogram) => !drawn.includes(histogram));
    const ridges = panel("Distribution over steps", wide.length ? `${counted(wide.length, "step")} from ${count(wide[0].step)} on: too wide to draw here` : "newest in front, the chosen step in orange");
    const band = panel("Quantiles over steps", "median; 25–75 % and 5–95 % of the values");
    body.append(ridges.box, band.box);
    if (drawn.length) ridges.body.append(ridgelines(drawn, Math.max(240, ridges.body.clientWidth), 300, getComputedStyle(ridges.body), chosen));
    const lines = histograms.map((histogram) => quantilesOf(histogram, QUANTILES));
    const names = ["5 %", "25 %", "median", "75 %", "95 %"];
    draw(band.body, {
      x: histograms.map((each) => each.step), unit: "step", mark: step, height: 270, logY: axisOf(now),
      lines: names.map((label, i) => ({ label, values: lines.map((line) => line[i]), color: 0, width: i === 2 ? 2 : 0.5 })),
      bands: [[4, 0, 0], [3, 1, 0]], onclick: (at) => go({ step: Math.round(at) }),
    });
  }

  /**
   * @param {Run} run
   * @param {string[]} names
   * @param {string} name
   * @param {ReturnType<typeof choose>} choice
   * @param {TensorAbout} about
   * @param {number | null} step
   * @param {State} now
   */
  function drawHead(run, names, name, choice, about, step, now) {
    const list = h("datalist", { id: "names" }, ...names.slice(0, 3000).map((each) => h("option", { value: each })));
    const box = h("input", { type: "search", list: "names", value: name, "aria-label": "tensor",
      onchange: () => { if (names.includes(box.value)) go({ name: box.value }); } });
    box.style.width = "min(34em, 40vw)";
    const at = step === null ? -1 : about.steps.indexOf(step);
    const move = (/** @type {number} */ by, /** @type {string} */ text, /** @type {string} */ hint) =>
      h("button", { title: hint, disabled: at + by < 0 || at + by >= about.steps.length, onclick: () => go({ step: about.steps[at + by] }) }, text);
    const jump = h("input", { type: "number", value: step ?? "", "aria-label": "step", onchange: () => go({ step: jump.value }) });
    jump.style.width = "7em";
    const twin = name.startsWith("gradient/") ? name.slice(9) : `gradient/${name}`;
    fill(head,
      h("label", { class: "field" }, h("span", {}, "tensor"), box), list,
      h("span", { class: "field" }, h("span", {}, "step"), move(-1, "◀", "The saved step before"), jump, move(1, "▶", "The next saved step")),
      run.modes.length > 1 && select("mode", run.modes.map(({ mode }) => ({ value: mode, text: mode })), choice.mode, (mode) => go({ mode, step: null })),
      run.workers.length > 1 && select("worker", [{ value: "", text: "all" }, ...run.workers.map((each) => ({ value: each, text: each }))], choice.worker, (worker) => go({ worker })),
      select("y axis", AXES, now.logy ?? "", (logy) => go({ logy })),
      (now.from || now.to) && h("button", { onclick: () => go({ from: null, to: null }) }, "Show all steps"),
      quiet(`${about.dtype} ${about.shape ? `[${about.shape.join(", ")}]` : ""}${about.nbytes ? `, ${size(about.nbytes)}` : ""}${about.collections.length ? `, in ${about.collections.join(", ")}` : ""}`),
      names.includes(twin) && h("a", { href: link({ name: twin }) }, name.startsWith("gradient/") ? "→ its parameter" : "→ its gradient"),
      h("a", { href: link({ view: "overview" }) }, "→ in the overview"));
  }

  return { show };
}

/** Return the step nearest to another, null if there is none. @param {number[]} steps @param {number} wanted */
export function nearest(steps, wanted) {
  /** @type {number | null} */
  let best = null;
  for (const step of steps) if (best === null || Math.abs(step - wanted) < Math.abs(best - wanted)) best = step;
  return best;
}
