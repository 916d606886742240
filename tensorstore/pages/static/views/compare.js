/** Compare: the scalars and the tensors of two runs. */

import { NOT_IN_REPORT, load, loadScalarTable, loadScalars, unlessMissing } from "../api.js";
import { panel } from "../chart.js";
import { colorsOf, comparedNames, tensorLink } from "../choice.js";
import { changes, drawCurves, rankOfSpecs, specsOf } from "../curves.js";
import { clipped, failure, field, fill, h, message, named, note, quiet, select, table, toolbar } from "../dom.js";
import { count, counted, number, textOf } from "../format.js";
import { stroke } from "../side.js";
import { go, link, state } from "../state.js";

const [MOST_CHARTS, HEIGHT, POINTS] = [12, 130, 300];

/** @type {ViewMaker} */
export function compare(root, page) {
  const tools = toolbar();
  const body = h("div");
  root.append(tools, body);

  let [a, b, compared] = ["", "", ""];
  let now = state();

  /** Return when the two runs began, which tells a run from an earlier one of its name. */
  const began = () => JSON.stringify([a, b].map((name) => page.info.runs.find((run) => run.name === name)?.started));

  /** @param {State} wanted */
  async function show(wanted) {
    now = wanted;
    if (page.info.runs.length < 2) return alone(page.info.runs[0].path);
    [a, b] = comparedNames(page.info, now);
    compared = began();
    drawTools();
    fill(body, message("Comparing …"));
    const found = await unlessMissing(load("difference", { a, b, rtol: now.rtol, atol: now.atol })).catch(failure) ?? { sentence: NOT_IN_REPORT, about: [], rows: [], lines: [], more: 0, lastAgreeing: null };
    if (found instanceof Element) {
      compared = ""; // once the runs change, compare again
      return fill(body, found);
    }
    const [first] = found.rows;
    const both = { view: "scalars", runs: [a, b] };
    const scalars = await loadScalarTable([a, b]);
    const charts = h("div", { class: "panels small" });
    const last = (/** @type {string} */ run, /** @type {ScalarRow} */ { name, mode }) => number(scalars.find((row) => row.run === run && row.name === name && row.mode === mode)?.last.value);
    fill(body,
      h("p", { class: "summary" }, found.sentence, " ", h("a", { href: link(both) }, "Scalars of both")),
      h("div", { class: "tables" }, folded("What differs besides the tensors", found.about, [{ title: "", cell: ([name]) => named(name) },
        ...[a, b].map((run, i) => ({ title: run, cell: (/** @type {any[]} */ [, ...values]) => { const texts = values.map(textOf); return clipped((texts[0] === texts[1] ? JSON.stringify(values[i]) : texts[i]) || "–"); } }))]),
      folded("Last value of the scalars", scalars.filter((row, i) => scalars.findIndex(({ name, mode }) => name === row.name && mode === row.mode) === i), [
        { title: "", cell: (row) => h("a", { class: "name", href: link({ ...both, q: row.name }) }, row.name, scalars.some(({ name, mode }) => name === row.name && mode !== row.mode) && ` · ${row.mode}`) },
        ...[a, b].map((run) => ({ title: run, number: true, cell: (/** @type {ScalarRow} */ row) => last(run, row) }))])),
      charts,
      first?.first && found.lastAgreeing && h("p", {}, "The last tensor that agrees before it: ", at(a, first, found.lastAgreeing)),
      ...found.lines.map((line) => note(line)),
      h("h3", {}, "Tensors"), table({
        rows: found.rows, empty: "No tensor that both have differs.",
        attributes: (row) => ({ class: row.first && "first" }),
        columns: [
          { title: "", cell: (row) => row.first ? h("span", { class: "bad", title: "The first difference" }, "first ▸") : "" },
          { title: "tensor", key: (row) => row.name, cell: (row) => at(row.kind === "only b" ? b : a, row) },
          { title: "mode", key: (row) => row.mode },
          { title: "worker", key: (row) => row.worker },
          { title: "first differs at step", number: true, key: (row) => row.step, cell: (row) => count(row.step) },
          { title: "what differs", key: (row) => row.what, cell: (row) => row.what.replace(/^only ([ab]) /, (_, of) => `only ${of === "a" ? a : b} `) },
          { title: "largest |a − b|", number: true, key: (row) => row.maxAbs },
          { title: "elements that differ", number: true, key: (row) => row.elements, cell: (row) => row.elements === null ? "" : count(row.elements) },
        ],
      }),
      found.more > 0 && note(`and ${counted(found.more, "tensor")} more that differ`));
    await drawScalars(charts, scalars, [a, b]);
  }

  /** @param {string} path of the only run */
  function alone(path) {
    const folder = path.replace(/[/\\]+[^/\\]*$/, "") || "/";
    fill(body, h("p", {}, "Only one run is open. This opens all runs of its folder, also later ones:"),
      h("p", {}, h("code", {}, `tensortrial page ${/[^\w./:=-]/.test(folder) ? JSON.stringify(folder) : folder}`)),
      note("The view ", h("a", { href: link({ view: "tensor" }) }, "Tensor"), " compares the steps of one run."));
  }

  function drawTools() {
    const names = page.info.runs.map(({ name }) => name);
    const color = colorsOf(page.info, now);
    fill(tools, stroke(color(a)), select("first run", names, a, (name) => go({ a: name, b })), stroke(color(b)), select("second run", names, b, (name) => go({ a, b: name })),
      h("button", { onclick: () => go({ a: b, b: a }) }, "Swap"),
      tolerance("rtol"), tolerance("atol"),
      quiet(now.rtol || now.atol ? "equal if |a − b| ≤ atol + rtol · |b|" : "equal bit by bit"));
  }

  /** Draw the important scalars of both runs that change. @param {HTMLElement} charts @param {ScalarRow[]} rows @param {string[]} runs */
  async function drawScalars(charts, rows, runs) {
    const rank = rankOfSpecs(rows);
    const specs = specsOf(rows, now).filter((spec) => changes(rows, spec)).sort((p, q) => rank(p) - rank(q)).slice(0, MOST_CHARTS);
    const curves = await loadScalars({ runs, names: [...new Set(specs.flatMap(({ names }) => names))], points: POINTS });
    for (const spec of specs) {
      const made = panel(spec.title);
      made.box.dataset.height = String(HEIGHT);
      charts.append(made.box);
      drawCurves({ spec, ...made }, curves, runs, page.info, now, true);
    }
  }

  /** @param {string} name */
  function tolerance(name) {
    const box = h("input", { type: "text", inputmode: "decimal", value: now[name] ?? "", placeholder: "0", "aria-label": name, onchange: () => go({ [name]: box.value.trim() }) });
    return field(name, box);
  }

  // Comparing the tensors again at each step may take long.
  return { show, grow: () => compared === began() ? drawTools() : show(now) };
}

/** @param {string} run @param {DifferenceRow} row */
const at = (run, { name, mode, step }, of = name) => tensorLink(of, { run, mode, step });

/** Return a table, folded if it is long. @template T @param {string} title @param {T[]} rows @param {TableColumn<T>[]} columns */
const folded = (title, rows, columns) => rows.length > 0 && h("details", { open: rows.length <= 12 }, h("summary", {}, h("b", {}, title), " ", quiet(count(rows.length))), table({ rows, columns }));
