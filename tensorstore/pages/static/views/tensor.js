/** Tensor: one tensor over steps and at a step. */

import { load, loadSeries, loadTensorNames, unlessMissing } from "../api.js";
import { axisSelect, draw, faultsText, panel, spanOf, together } from "../chart.js";
import { choose, chosenRun, inWords, modeAndWorker, modeOf, rangeOf, stepOf } from "../choice.js";
import { bad, field, fill, h, message, named, note, quiet, select, skeleton, toolbar } from "../dom.js";
import { count, counted, number, size } from "../format.js";
import { comparable, ridgelines } from "../ridgeline.js";
import { REPLACE, go, link, state } from "../state.js";
import { treeOf } from "../tree.js";
import { valuePanels } from "../value.js";

const RIDGES = 24;
const [FIRST, TALL, SMALL] = [210, 260, 150]; // pixels
/** Prefixes of names, and their meaning. */
const RELATED = { "gradient/": "its gradient", "update/": "its update", "update_ratio/": "its update / itself" };
const QUANTILES = ["5 %", "25 %", "median", "75 %", "95 %"];

/** @type {ViewMaker} */
export function tensor(root, page) {
  const head = toolbar();
  const body = h("div", { class: "panels" });
  root.append(head, body);
  /** @type {[number, number] | undefined} the steps on the x axis of every chart */
  let span;
  /** @type {number | null} the chosen one */
  let step = null;
  let now = state();

  const row = () => body.appendChild(h("div", { class: "panels small wide" }));

  /** @param {State} state */
  async function show(state) {
    now = state;
    const run = chosenRun(page.info, now);
    if (!body.childElementCount) fill(body, skeleton(500));
    const names = await loadTensorNames(run.name);
    const name = now.name ?? names[0];
    if (name === undefined) return fill(body, message("This run has no tensors yet."));
    const choice = choose(run, now);
    const { mode, worker, statistic } = choice;
    const of = { run: run.name, name, mode, worker };
    const about = await load("tensor", of);
    const { steps } = about;
    step = nearest(steps, stepOf(now.step) ?? steps[steps.length - 1]);
    drawHead(run, names, name, choice, about);
    const { from, to } = rangeOf(now, modeOf(run, mode));
    const query = { ...of, from, to };
    const [series, histograms] = await Promise.all([
      loadSeries({ ...query, statistics: about.statistics, points: 500 }),
      load("histograms", { ...query, count: RIDGES }),
    ]);
    if (!steps.length) return fill(body, message(`This tensor has no step of mode ${mode}.`));
    body.style.minHeight = `${body.offsetHeight}px`; // so that nothing moves meanwhile
    fill(body);
    span = spanOf([from ?? steps[0], to ?? steps[steps.length - 1]]);
    await drawAll(series, about.shape?.length === 0 ? [] : histograms, statistic, query).finally(() => { body.style.minHeight = ""; });
  }

  /** @param {Series} series @param {Histogram[]} histograms @param {string} statistic @param {OfTensor & Span} query */
  async function drawAll(series, histograms, statistic, query) {
    // A report has all statistics, also unsaved ones.
    const saved = series.statistics.filter(isSaved);
    const first = saved.filter((each) => each.statistic === statistic || each.statistic === "value");
    const others = saved.filter((each) => !first.includes(each));
    const constant = others.filter(({ min, max, nonfinite }) => series.steps.length > 1 && !nonfinite && new Set([...min, ...max]).size === 1);
    drawRow(FIRST, first.map((each) => [series, each]));
    if (step !== null) await valuePanels(body, { ...query, step }, now);
    await drawRelated(query, first[0]?.statistic ?? "l2");
    await drawHistograms(histograms, query);
    drawRow(SMALL, others.filter((each) => !constant.includes(each)).map((each) => [series, each]));
    if (constant.length) body.append(h("p", { class: "quiet panel wide" }, "Did not change: ", constant.map(({ statistic, last }) => `${inWords(statistic)} ${number(last)}`).join(", ")));
  }

  /** Draw charts in a row, whose widths are known once all are there. @param {number} height @param {[Series, Statistic, string?][]} of */
  function drawRow(height, of) {
    const into = row();
    for (const finish of of.map((each) => placeSeries(into, height, ...each))) finish();
  }

  /** Draw a statistic of the tensor's gradient and update, if saved. @param {OfTensor & Span} query @param {string} statistic */
  async function drawRelated(query, statistic) {
    const names = await loadTensorNames(query.run);
    /** @type {[Series, Statistic, string][]} */
    const related = [];
    for (const [prefix, title] of Object.entries(RELATED)) {
      const name = prefix + query.name;
      if (!names.includes(name)) continue;
      const found = await unlessMissing(loadSeries({ ...query, name, statistics: [statistic, "value"], points: 500 }));
      const saved = found?.statistics.find(isSaved);
      if (found && saved) related.push([found, saved, title]);
    }
    drawRow(SMALL, related);
  }

  /** Return what draws a chart once its row is complete. @type {PlaceSeries} */
  function placeSeries(into, height, series, one, of = "") {
    const banded = one.min.some((value, i) => !Object.is(value, one.max[i]));
    const label = one.statistic === "value" ? of || "value" : `${inWords(one.statistic)}${of && ` of ${of}`}`;
    const { box, body: inside } = panel(label,
      one.mean.length > 0 && [Number.isFinite(one.last) && quiet(`last ${number(one.last)}`), one.nonfinite > 0 && bad(faultsText(one)), series.leftOut > 0 && quiet(`${counted(series.leftOut, "step")} of raw values left out`)]);
    into.append(box);
    return () => draw(inside, {
      x: series.steps, unit: "step", span, mark: step, logY: now.logy ?? "", height,
      lines: banded
        ? [{ label: `${label}, largest`, values: one.max, width: 0.5, color: 0 }, { label: "smallest", values: one.min, width: 0.5, color: 0 }, { label: "mean", values: one.mean, color: 0 }]
        : [{ label, values: one.mean, color: 0 }],
      bands: banded ? [[0, 1, 0]] : [],
      onclick: (at) => go({ step: Math.round(at) }),
      onrange: (from, to) => go({ from: Math.floor(from), to: Math.ceil(to) }),
    });
  }

  /** Draw the histogram at a step, over it that of another run. @param {HTMLElement} into @param {At} query */
  async function drawHistogram(into, query) {
    const others = page.info.runs.map(({ name }) => name).filter((name) => name !== query.run);
    const { box, body: inside } = panel(`Distribution at step ${count(query.step)}`, others.length > 0 && select("over it", [["", "no other run"], ...others], now.over ?? "", (over) => go({ over }, REPLACE)));
    into.prepend(box);
    const runs = [query.run, ...others.filter((name) => name === now.over)];
    const found = await Promise.all(runs.map((run) => histogramAt({ ...query, run }).catch((error) => note(`${run}: ${error.message}`))));
    const held = found.flatMap((each, color) => (each && "edges" in each ? [{ ...each, color, x: Array.from(each.counts, (_, i) => (each.edges[i] + each.edges[i + 1]) / 2) }] : []));
    const { x, spread } = together(held.map((each) => each.x));
    if (held.length) draw(inside, { x, unit: "number", height: TALL, lines: held.map((each) => ({ label: `${runs[each.color]}, step ${count(each.step)}`, color: each.color, values: spread(each.x, each.counts) })) });
    inside.append(...found.map((each, i) => (each instanceof Element ? each : each?.step === query.step ? "" : note(each ? `${runs[i]} at step ${count(each.step)}` : `${runs[i]} has no histogram near this step.`))));
  }

  /** @param {Histogram[]} histograms @param {OfTensor & Span} query */
  async function drawHistograms(histograms, query) {
    if (!histograms.length) return;
    const chosen = step === null ? null : nearest(histograms.map((each) => each.step), step);
    const drawn = comparable(histograms);
    const wide = histograms.filter((histogram) => !drawn.includes(histogram));
    const ridges = panel("Distribution over steps", wide.length ? `${counted(wide.length, "step")} from ${count(wide[0].step)} on: too wide here` : "the chosen step in orange");
    const band = panel("Quantiles over steps", "median, 25–75 %, 5–95 %");
    const into = row();
    into.append(ridges.box, band.box);
    if (step !== null) await drawHistogram(into, { ...query, step });
    if (drawn.length) ridges.body.append(ridgelines(drawn, Math.max(240, ridges.body.clientWidth), TALL, chosen));
    draw(band.body, {
      x: histograms.map((each) => each.step), unit: "step", span, mark: step, height: TALL, logY: now.logy ?? "",
      lines: QUANTILES.map((label, i) => ({ label, values: histograms.map(({ quantiles }) => quantiles[i]), color: 0, width: i === 2 ? 2 : 0.5 })),
      bands: [[4, 0, 0], [3, 1, 0]], onclick: (at) => go({ step: Math.round(at) }),
    });
  }

  /** @param {Run} run @param {string[]} names @param {string} name @param {Choice} choice @param {TensorAbout} about */
  function drawHead(run, names, name, choice, about) {
    const box = h("input", { type: "search", value: name, "aria-label": "tensor",
      onchange: () => { const found = [box.value, ...names].find((each) => names.includes(each) && each.includes(box.value)); if (found) go({ name: found }); } });
    const at = step === null ? -1 : about.steps.indexOf(step);
    const move = (/** @type {number} */ by, /** @type {string} */ text, /** @type {string} */ hint) =>
      h("button", { title: hint, "aria-label": hint, disabled: at + by < 0 || at + by >= about.steps.length, onclick: () => go({ step: about.steps[at + by] }) }, text);
    const jump = h("input", { type: "number", value: step ?? "", "aria-label": "step", onchange: () => go({ step: jump.value }) });
    const tree = h("details", { class: "chooser", ontoggle: () => { if (tree.childElementCount < 2) tree.append(h("div", {}, branches(treeOf(names), names, name))); } }, h("summary", {}, "tree"));
    const twin = name.startsWith("gradient/") ? name.slice(9) : `gradient/${name}`;
    fill(head,
      field("tensor", box), tree,
      h("span", { class: "field" }, h("span", {}, "step"), move(-1, "◀", "The saved step before"), jump, move(1, "▶", "The next saved step")),
      ...modeAndWorker(run, choice),
      axisSelect(now),
      (now.from || now.to) && h("button", { onclick: () => go({ from: null, to: null }) }, "Show all steps"),
      quiet(`${about.dtype} ${about.shape ? `[${about.shape.join(", ")}]` : ""}${about.nbytes ? `, ${size(about.nbytes)}` : ""}${about.collections.length ? `, in ${about.collections.join(", ")}` : ""}`),
      names.includes(twin) && h("a", { href: link({ name: twin }) }, "→ its ", name.startsWith("gradient/") ? "parameter" : "gradient"));
  }

  return { show };
}

/** @param {Statistic} one */
const isSaved = ({ mean }) => mean.some((value) => value !== null);

/** Return the modules below one as lists that unfold. @param {Branch} of @param {string[]} names @param {string} shown @returns {HTMLElement} */
function branches(of, names, shown) {
  return h("ul", { class: "tree" }, ...[...of.children.values()].map((child) => {
    let at = child;
    while (at.children.size === 1 && at.tensor < 0) [at] = at.children.values();
    const leaf = at.tensor >= 0 && h("a", { class: "name", href: link({ name: names[at.tensor], slice: null }), "aria-current": names[at.tensor] === shown && "true" }, at.name);
    if (!at.children.size) return h("li", {}, leaf);
    const fold = h("details", { open: at.members.some((i) => names[i] === shown), ontoggle: () => { if (fold.open && fold.childElementCount < 2) fold.append(branches(at, names, shown)); } },
      h("summary", {}, named(at.name), " ", quiet(count(at.members.length))));
    return h("li", {}, at.tensor >= 0 && leaf, fold);
  }));
}

/** Return the histogram of a tensor that is nearest to a step. @param {At} query */
async function histogramAt({ step: wanted, ...query }) {
  const step = nearest((await load("tensor", query)).steps, wanted);
  const found = await load("histograms", { ...query, from: step, to: step, count: 1 });
  return found.find((each) => each.step === nearest(found.map((one) => one.step), wanted));
}

/** Return the nearest step, null if there is none. @param {number[]} steps @param {number} wanted */
const nearest = (steps, wanted) => steps.length ? steps.reduce((best, step) => Math.abs(step - wanted) < Math.abs(best - wanted) ? step : best) : null;
