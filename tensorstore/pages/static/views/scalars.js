/** Scalars: curves of many runs, in sections. */

import { loadScalarTable, loadScalars } from "../api.js";
import { axisSelect, panel, spanOf } from "../chart.js";
import { listOf, star, tickedNames, toggled } from "../choice.js";
import { changes, drawCurves, rankOfSpecs, specsOf } from "../curves.js";
import { drawDiagnosis, inOneSentence } from "../diagnosis.js";
import { checkbox, field, fill, h, message, named, quiet, select, skeleton, table, textbox, toolbar } from "../dom.js";
import { contains, count, counted, grouped, number } from "../format.js";
import { REPLACE, go, state } from "../state.js";

const POINTS = 800;
const CONSTANT = "Constant";

/** @type {ViewMaker} */
export function scalars(root, page) {
  const tools = toolbar();
  const diagnosis = h("div");
  const body = h("div");
  root.append(diagnosis, tools, body);
  /** @type {ScalarRow[]} */
  let rows = [];
  /** @type {Map<string, Place>} */
  const places = new Map();
  let before = new Map(places);
  /** @type {Set<string>} */
  const waiting = new Set();
  /** @type {(() => void)[]} */
  let arrived = [];
  /** @type {State} */
  let drawn = {};
  let generation = 0;
  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      const place = places.get(/** @type {HTMLElement} */ (target).dataset.key ?? "");
      if (!isIntersecting || !place) continue;
      seen.unobserve(target);
      waiting.add(place.spec.key);
    }
    void load();
  }, { root: innerWidth > 800 ? root : null, rootMargin: "300px" });

  /** @param {State} now */
  async function show(now) {
    drawn = now;
    const mine = ++generation;
    drawTools(now);
    const runs = tickedNames(page.info, now);
    if (!places.size && !body.childElementCount) fill(body, skeleton(500));
    rows = await loadScalarTable(runs);
    if (mine !== generation) return;
    if (page.info.runs.length === 1) drawDiagnosis(diagnosis, page, page.info.runs[0], inOneSentence);
    before = new Map(places);
    places.clear();
    const found = rows.filter(({ name }) => contains(name, now.q));
    if (!found.length) return fill(body, message(!runs.length ? "No run is ticked in the list of runs." : now.q ? "No scalar has such a name." : "No scalars were saved. hook.save_scalar(name, value) saves one."));
    const full = specsOf(found, now).find(({ key }) => key === now.full);
    if (full) fill(body, place(full, Math.max(300, root.clientHeight - 150)));
    else drawSections(sectionsOf(found, now), found, now);
    // The observer calls back also for places that are not seen.
    if (places.size) await new Promise((resolve) => { arrived.push(() => resolve(null)); });
  }

  /** @param {State} now */
  function drawTools(now) {
    const amount = h("span");
    const say = () => { amount.textContent = Number(slider.value) ? slider.value : "none"; };
    const slider = h("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: now.smooth ?? 0, "aria-label": "smoothing", oninput: say,
      onchange: () => go({ smooth: Number(slider.value) ? slider.value : null }, REPLACE) });
    say();
    fill(tools,
      textbox("find", now.q ?? "", (q) => go({ q, full: null }, REPLACE), "part of a name"),
      select("x axis", [["", "step of the mode"], ["global", "global step"], ["relative", "relative time"], ["time", "time"]], now.x ?? "", (x) => go({ x, full: null, zoom: null })),
      checkbox("log x", now.logx === "1", (on) => go({ logx: on ? "1" : null })),
      axisSelect(now),
      field("smoothing", [slider, amount], "Exponential moving average; the tooltip has both numbers."),
      now.zoom && h("button", { onclick: () => go({ zoom: null }) }, "Show all of x"),
      now.full && h("button", { onclick: () => go({ full: null }) }, "Show all charts"));
  }

  /** @param {Section[]} sections @param {ScalarRow[]} found @param {State} now */
  function drawSections(sections, found, now) {
    const turned = new Set(listOf(now.sections));
    const parts = sections.map(({ title, specs }) => {
      const constant = title === CONSTANT;
      const box = h("details", { class: "section", "data-title": title, open: constant === turned.has(title) },
        h("summary", {}, h("b", {}, title), " ", quiet(constant ? `${counted(specs.length, "scalar")} that did not change` : count(specs.length))),
        constant ? constantTable(specs, found) : h("div", { class: "panels" }, ...specs.map((spec) => place(spec, innerWidth >= 2200 ? 320 : 220))));
      box.addEventListener("toggle", () => {
        const { sections } = state();
        if (box.open !== (constant === listOf(sections).includes(title))) go({ sections: toggled(sections, title) }, { replace: true, quiet: true });
      });
      return box;
    });
    fill(body, ...parts);
  }

  /** Return the panel of a chart, which is loaded once it is seen. @param {Spec} spec @param {number} height */
  function place(spec, height) {
    const known = before.get(spec.key);
    const made = known && known.box.dataset.height === String(height) ? known : { spec, ...panel(spec.title, "", spec.key === drawn.full) };
    made.box.dataset.key = spec.key;
    made.box.dataset.height = String(height);
    const header = /** @type {HTMLElement} */ (made.box.querySelector("header"));
    header.querySelector(".acts")?.remove();
    header.querySelector(".aside")?.after(h("span", { class: "acts" },
      star("pins", spec.key, drawn, spec.title),
      h("button", { class: "plain", "aria-label": `full size ${spec.title}`, title: drawn.full ? "Show all charts" : "Full size", onclick: () => go({ full: drawn.full ? null : spec.key }) }, "⤢")));
    if (made !== known) fill(made.body, skeleton(height));
    places.set(spec.key, made);
    seen.unobserve(made.box);
    seen.observe(made.box);
    return made.box;
  }

  async function load() {
    const wanted = [...waiting].map((key) => places.get(key)).filter((each) => each !== undefined);
    waiting.clear();
    const done = arrived;
    arrived = [];
    const now = drawn;
    try {
      if (wanted.length) {
        const runs = tickedNames(page.info, now);
        const curves = await loadScalars({ runs, names: [...new Set(wanted.flatMap(({ spec }) => spec.names))], points: POINTS });
        if (now === drawn) for (const each of wanted) drawCurves(each, curves, runs, page.info, now);
      }
    } catch (error) {
      page.fail(error);
    }
    for (const each of done) each();
  }

  return { show };
}

/** Return charts by the part of their names before a slash, the important ones first. @param {ScalarRow[]} rows @param {State} now */
function sectionsOf(rows, now) {
  const rank = rankOfSpecs(rows);
  const specs = specsOf(rows, now).sort((a, b) => rank(a) - rank(b));
  const pins = listOf(now.pins);
  const pinned = specs.filter(({ key }) => pins.includes(key));
  // A loss that does not move is unexpected.
  const constants = specs.filter((spec) => !pinned.includes(spec) && rank(spec) > 1 && !changes(rows, spec));
  const others = specs.filter((spec) => !pinned.includes(spec) && !constants.includes(spec));
  const prefixOf = (/** @type {Spec} */ { title }) => title.slice(0, Math.max(0, title.indexOf("/")));
  const prefixes = grouped(others, prefixOf);
  const sections = grouped(others, (spec) => prefixes.get(prefixOf(spec))?.[1] ? prefixOf(spec) : "");
  const least = (/** @type {Spec[]} */ members) => Math.min(...members.map(rank));
  const ordered = [...sections].sort(([, a], [, b]) => least(a) - least(b));
  return [...(pinned.length ? [{ title: "Pinned", specs: pinned }] : []),
    ...ordered.map(([prefix, members]) => ({ title: prefix || "Scalars", specs: members })),
    ...(constants.length ? [{ title: CONSTANT, specs: constants }] : [])];
}

/** @param {Spec[]} specs @param {ScalarRow[]} rows */
function constantTable(specs, rows) {
  return table({ rows: specs.flatMap((spec) => spec.names.map((name) => ({ ...spec, name }))), columns: [
    { title: "scalar", cell: ({ title, name, names, mode }) => named(names.length > 1 ? [name, mode].filter(Boolean).join(" · ") : title) },
    { title: "value", number: true, cell: ({ name, mode }) => {
      const values = rows.filter((row) => row.name === name && (mode === null || row.mode === mode)).map(({ last }) => Number(last.value));
      return spanOf(values)?.map(number).join(" … ").concat(", by run") ?? number(values[0]);
    } },
  ] });
}
