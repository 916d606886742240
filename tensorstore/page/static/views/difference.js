/** Difference: two runs layer by layer, the first difference marked. */

import { loadDifference } from "../api.js";
import { fill, h, select, table } from "../dom.js";
import { count, counted, number, printable } from "../format.js";
import { go, link } from "../state.js";

/** @type {import("../app.js").ViewMaker} */
export function difference(root, page) {
  const tools = h("div", { class: "tools" });
  const body = h("div", {});
  root.append(tools, body);

  /** @param {import("../state.js").State} now */
  async function show(now) {
    const { runs } = page.info;
    if (runs.length < 2) {
      fill(body, h("p", { class: "message" }, "Only one run is open. Open two to compare them: tensortrial page RUN_A RUN_B"));
      return;
    }
    const names = runs.map(({ name }) => ({ value: name, text: printable(name) }));
    const a = runs.find((run) => run.name === now.a)?.name ?? runs[0].name;
    const b = runs.find((run) => run.name === now.b && run.name !== a)?.name ?? runs.find((run) => run.name !== a)?.name ?? "";
    fill(tools, select("first run", names, a, (name) => go({ a: name, b })), select("second run", names, b, (name) => go({ a, b: name })),
      h("button", { onclick: () => go({ a: b, b: a }) }, "Swap"));
    fill(body, h("p", { class: "message" }, "Comparing …"));
    const found = await loadDifference(a, b);
    fill(body, h("p", { class: "summary" }, printable(found.sentence)),
      table({
        rows: found.rows, sort: now.sort ?? "", onsort: (sort) => go({ sort }, { replace: true }), empty: "Nothing differs.",
        attributes: (row) => ({ class: row.first && "first" }),
        columns: [
          { title: "", cell: (row) => row.first ? h("span", { class: "bad", title: "The first difference" }, "first ▸") : "" },
          { title: "tensor", key: (row) => row.name, cell: (row) => h("a", { class: "name", href: link({ view: "tensor", run: a, name: row.name, step: row.step }) }, printable(row.name)) },
          { title: "mode", key: (row) => row.mode, cell: (row) => row.mode },
          { title: "first differs at step", number: true, key: (row) => row.step, cell: (row) => row.step === null ? "" : count(row.step) },
          { title: "steps that differ", number: true, key: (row) => row.differing, cell: (row) => row.differing === null ? "" : count(row.differing) },
          { title: "what differs", key: (row) => row.what, cell: (row) => printable(row.what) },
          { title: printable(a), number: true, cell: (row) => number(row.left) },
          { title: printable(b), number: true, cell: (row) => number(row.right) },
        ],
      }),
      found.agreeing ? h("p", { class: "quiet" }, `${counted(found.agreeing, "tensor")} agree at all common steps.`) : "");
  }

  return { show, grow: () => {} };
}
