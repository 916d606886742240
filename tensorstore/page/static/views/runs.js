/** Runs: all of them as a table, two of which can be compared. */

import { loadSizes, unlessMissing } from "../api.js";
import { fill, h, table, textbox } from "../dom.js";
import { count, printable, size, time } from "../format.js";
import { go, link } from "../state.js";

/** @type {import("../app.js").ViewMaker} */
export function runs(root, page) {
  const tools = h("div", { class: "tools" });
  const body = h("div", {});
  root.append(tools, body);
  /** @type {Record<string, number>} */
  let sizes = {};

  /** @param {State} now */
  async function show(now) {
    drawTable(now);
    const found = await unlessMissing(loadSizes());
    if (found instanceof Error) return;
    sizes = found;
    drawTable(now);
  }

  /** @param {State} now */
  function drawTable(now) {
    const wanted = (now.rq ?? "").toLowerCase();
    const picked = [now.a, now.b].filter((name) => page.info.runs.some((run) => run.name === name));
    const box = tools.querySelector("input");
    if (!box) {
      tools.append(textbox("search", now.rq ?? "", (rq) => go({ rq }, { replace: true }), { placeholder: "name or metadata" }), h("span", {}));
    }
    fill(/** @type {Element} */ (tools.lastElementChild),
      picked.length === 2 ? h("a", { href: link({ view: "difference" }) }, `Compare ${printable(picked[0])} with ${printable(picked[1])} →`)
        : page.info.runs.length > 1 ? h("span", { class: "quiet" }, "Tick two runs to compare them.") : "");
    const keys = [...new Set(page.info.runs.flatMap((run) => Object.keys(run.metadata)))].slice(0, 12);
    const rows = page.info.runs.filter((run) => `${run.name} ${JSON.stringify(run.metadata)}`.toLowerCase().includes(wanted));
    fill(body, table({
      rows, sort: now.sort ?? "", onsort: (sort) => go({ sort }, { replace: true }), empty: "No run matches.",
      attributes: (run) => ({ class: picked.includes(run.name) && "chosen" }),
      columns: [
        { title: "", cell: (run) => pick(run.name, now) },
        { title: "run", key: (run) => run.name, cell: (run) => h("a", { class: "name", href: link({ view: null, run: run.name, name: null, step: null, from: null, to: null }) }, printable(run.name)) },
        { title: "state", key: (run) => String(run.ended), cell: (run) => run.ended ? "ended" : h("span", { class: "status live" }, "open") },
        { title: "steps", number: true, key: (run) => run.steps, cell: (run) => count(run.steps) },
        { title: "size of its files", number: true, key: (run) => sizes[run.name], cell: (run) => size(sizes[run.name]) },
        { title: "workers", number: true, key: (run) => run.workers.length, cell: (run) => run.workers.length },
        { title: "findings", number: true, key: (run) => run.findings, cell: (run) => run.findings ? h("a", { class: "bad", href: link({ view: "findings", run: run.name }) }, run.findings) : "0" },
        { title: "started", key: (run) => run.started, cell: (run) => time(run.started) },
        { title: "framework", key: (run) => run.framework, cell: (run) => printable(run.framework) },
        ...keys.map((key) => ({ title: printable(key), key: (/** @type {Run} */ run) => run.metadata[key],
          cell: (/** @type {Run} */ run) => run.metadata[key] === undefined ? "" : printable(typeof run.metadata[key] === "string" ? run.metadata[key] : JSON.stringify(run.metadata[key])) })),
      ],
    }));
    if (page.info.damaged.length) {
      body.append(h("h3", {}, "Could not be opened"), ...page.info.damaged.map((text) => h("p", { class: "error" }, printable(text))));
    }
  }

  /**
   * @param {string} name
   * @param {State} now
   */
  function pick(name, now) {
    const chosen = now.a === name || now.b === name;
    return h("input", { type: "checkbox", checked: chosen, "aria-label": `compare ${printable(name)}`, onchange: () => {
      if (chosen) go(now.a === name ? { a: now.b, b: null } : { b: null });
      else go(now.a ? { b: name } : { a: name });
    } });
  }

  return { show };
}
