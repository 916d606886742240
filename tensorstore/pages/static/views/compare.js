/** Compare: two runs layer by layer, the first difference marked. */

import { loadDifference, loadScalarTable } from "../api.js";
import { tensorLink, tickedRuns } from "../choice.js";
import { fill, h, message, named, note, quiet, select, table, toolbar } from "../dom.js";
import { count, counted, number } from "../format.js";
import { REPLACE, go, link } from "../state.js";

/** @type {ViewMaker} */
export function compare(root, page) {
  const tools = toolbar();
  const body = h("div", {});
  root.append(tools, body);

  /** @param {State} now */
  async function show(now) {
    const { runs } = page.info;
    if (runs.length < 2) {
      fill(body, message("Only one run is open. Open two to compare them: tensortrial page RUN_A RUN_B"));
      return;
    }
    const names = runs.map(({ name }) => name);
    const [newest, older] = tickedRuns(page.info, now).concat(runs);
    const a = runs.find((run) => run.name === now.a)?.name ?? older.name;
    const b = [now.b, newest.name, ...runs.map(({ name }) => name)].find((name) => name !== a && runs.some((run) => run.name === name)) ?? "";
    fill(tools, select("first run", names, a, (name) => go({ a: name, b })), select("second run", names, b, (name) => go({ a, b: name })),
      h("button", { onclick: () => go({ a: b, b: a }) }, "Swap"),
      tolerance("rtol", now.rtol), tolerance("atol", now.atol),
      quiet(now.rtol || now.atol ? "equal if |a − b| ≤ atol + rtol · |b|" : "equal bit by bit"));
    fill(body, message("Comparing …"));
    const found = await loadDifference({ a, b, rtol: now.rtol, atol: now.atol });
    const [first] = found.rows;
    const both = { view: "scalars", runs: JSON.stringify([a, b]) };
    const scalars = await loadScalarTable([a, b]);
    const last = (/** @type {string} */ run, /** @type {ScalarRow} */ { name, mode }) => number(scalars.find((row) => row.run === run && row.name === name && row.mode === mode)?.last.value);
    fill(body,
      h("p", { class: "summary" }, found.sentence, " ", h("a", { href: link(both) }, "Scalars of both")),
      folded("What differs besides the tensors", found.about, [{ title: "", cell: ([name]) => named(name) },
        ...[a, b].map((run, i) => ({ title: run, cell: (/** @type {string[]} */ row) => row[i + 1] || "–" }))]),
      folded("Last value of the scalars", scalars.filter((row, i) => scalars.findIndex(({ name, mode }) => name === row.name && mode === row.mode) === i), [
        { title: "", cell: (row) => h("a", { class: "name", href: link({ ...both, q: row.name }) }, row.name, row.mode === "GLOBAL" ? "" : ` · ${row.mode}`) },
        ...[a, b].map((run) => ({ title: run, number: true, cell: (/** @type {ScalarRow} */ row) => last(run, row) }))]),
      first?.first && found.lastAgreeing && h("p", {}, "The last tensor that agrees before it: ", at(a, first, found.lastAgreeing)),
      ...found.lines.map((line) => note(line)),
      table({
        rows: found.rows, sort: now.sort ?? "", onsort: (sort) => go({ sort }, REPLACE), empty: "No tensor that both have differs.",
        attributes: (row) => ({ class: row.first && "first" }),
        columns: [
          { title: "", cell: (row) => row.first ? h("span", { class: "bad", title: "The first difference" }, "first ▸") : "" },
          { title: "tensor", key: (row) => row.name, cell: (row) => at(row.kind === "only b" ? b : a, row) },
          { title: "mode", key: (row) => row.mode, cell: (row) => row.mode },
          { title: "worker", key: (row) => row.worker, cell: (row) => row.worker },
          { title: "first differs at step", number: true, key: (row) => row.step, cell: (row) => count(row.step) },
          { title: "what differs", key: (row) => row.what, cell: (row) => row.what.replace(/^only ([ab]) /, (_, of) => `only ${of === "a" ? a : b} `) },
          { title: "largest |a − b|", number: true, key: (row) => row.maxAbs, cell: (row) => number(row.maxAbs) },
          { title: "elements that differ", number: true, key: (row) => row.elements, cell: (row) => row.elements === null ? "" : count(row.elements) },
        ],
      }),
      found.more > 0 && note(`and ${counted(found.more, "tensor")} more that differ`));
  }

  /** @param {string} name @param {string | undefined} value */
  function tolerance(name, value) {
    const box = h("input", { type: "text", inputmode: "decimal", value: value ?? "", placeholder: "0", "aria-label": name, onchange: () => go({ [name]: box.value.trim() }) });
    box.style.width = "5em";
    return h("label", { class: "field" }, h("span", {}, name), box);
  }

  return { show, grow: () => {} };
}

/** @param {string} run @param {DifferenceRow} row */
const at = (run, { name, mode, step }, of = name) => tensorLink(of, { run, mode, step });

/** Return a table that is folded where it is long. @template T @param {string} title @param {T[]} rows @param {{title: string, number?: boolean, cell: (row: T) => import("../dom.js").Child}[]} columns */
function folded(title, rows, columns) {
  return rows.length > 0 && h("details", { open: rows.length <= 12 }, h("summary", {}, h("b", {}, title), " ", quiet(count(rows.length))), table({ rows, columns }));
}
