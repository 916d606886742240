/** Availability: which worker has which step, who is behind, what is damaged. */

import { loadAvailability } from "../api.js";
import { choose, chosenRun } from "../choice.js";
import { fill, h, message, named, note, select, table, toolbar } from "../dom.js";
import { count, counted, date } from "../format.js";
import { Heatmap, MISSING, VALUE } from "../heatmap.js";
import { REPLACE, go } from "../state.js";
import { tooltip } from "../tooltip.js";

/** @type {ViewMaker} */
export function availability(root, page) {
  const tools = toolbar();
  const stage = h("div", { class: "stage" });
  stage.style.flex = "0 0 auto";
  const body = h("div", {});
  root.append(tools, stage, body);
  /** @type {Availability | null} */
  let loaded = null;
  const map = new Heatmap(stage, { open: () => {}, move: () => {}, hover: (cell, x, y) => {
    if (!cell || cell.column < 0 || !loaded) {
      tooltip(null);
      return;
    }
    const { starts, end, workers } = loaded;
    const worker = workers[cell.row];
    const last = (cell.column + 1 < starts.length ? starts[cell.column + 1] : end) - 1;
    tooltip({ title: worker.name, pairs: [["steps", starts[cell.column] === last ? count(last) : `${count(starts[cell.column])} – ${count(last)}`], ["saved", counted(worker.saved[cell.column], "step")],
      ["missing", counted(worker.missing[cell.column], "step")]] }, x, y);
  } });

  /** @param {State} now */
  async function show(now) {
    const run = chosenRun(page.info, now);
    const { mode } = choose(run, now);
    if (!mode) {
      fill(body, message("This run has no step yet."));
      return;
    }
    loaded = await loadAvailability({ run: run.name, mode, columns: 500 });
    fill(tools, run.modes.length > 1 && select("mode", run.modes.map((each) => ({ value: each.mode, text: each.mode })), mode, (to) => go({ mode: to })),
      h("span", { class: "swatch" }, h("i", { class: "saved" }), "saved"), h("span", { class: "swatch" }, h("i", { class: "missing" }), "missing: lost, or not written yet"));
    const { starts, end, workers } = loaded;
    stage.style.minHeight = stage.style.height = `${Math.min(600, 70 + workers.length * 26)}px`;
    const values = new Float64Array(workers.length * starts.length);
    const flags = new Uint8Array(values.length);
    workers.forEach((worker, row) => starts.forEach((_, column) => {
      const at = row * starts.length + column;
      flags[at] = worker.missing[column] || !worker.saved[column] ? MISSING : VALUE;
      values[at] = 0.62;
    }));
    map.show({ rows: workers.map((worker) => ({ text: worker.name, key: worker.name, level: 0, kind: "tensor" })), starts, end, values, flags,
      scale: { kind: "sequential", low: 0, high: 1, log: false }, marks: [] }, { row0: 0, row1: workers.length });
    const newest = Math.max(...workers.map((worker) => worker.last));
    fill(body, loaded.sentence && h("p", { class: "summary" }, loaded.sentence),
      table({ rows: workers, sort: now.sort ?? "", onsort: (sort) => go({ sort }, REPLACE), columns: [
        { title: "worker", key: (worker) => worker.name, cell: (worker) => named(worker.name) },
        { title: "state", key: (worker) => String(worker.ended), cell: (worker) => worker.ended ? "ended" : h("span", { class: "status live" }, "open") },
        { title: "last step", number: true, key: (worker) => worker.last, cell: (worker) => count(worker.last) },
        { title: "behind", number: true, key: (worker) => newest - worker.last, cell: (worker) => newest > worker.last ? h("span", { class: "bad" }, counted(newest - worker.last, "step")) : "0" },
        { title: "last saved", key: (worker) => worker.savedAt, cell: (worker) => date(worker.savedAt) },
      ] }),
      loaded.damaged.length ? h("h3", {}, "Damaged") : note("No file of the run is known to be damaged."),
      ...loaded.damaged.map((text) => h("p", { class: "error" }, text)));
  }

  return { show };
}
