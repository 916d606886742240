/** Workers: who is behind, what is missing or damaged. */

import { load } from "../api.js";
import { choose, chosenRun, modeAndWorker } from "../choice.js";
import { bad, fill, h, message, named, note, table, toolbar } from "../dom.js";
import { count, counted, date } from "../format.js";

/** @type {ViewMaker} */
export function availability(root, page) {
  const tools = toolbar();
  const body = h("div");
  root.append(tools, body);

  /** @param {State} now */
  async function show(now) {
    const run = chosenRun(page.info, now);
    const choice = choose(run, now);
    if (!choice.mode) return fill(body, message("This run has no step yet."));
    const { starts, workers, sentence, damaged } = await load("availability", { run: run.name, mode: choice.mode, columns: 500 });
    fill(tools, ...modeAndWorker({ ...run, workers: [] }, choice));
    const newest = Math.max(...workers.map((worker) => worker.last));
    const missing = (/** @type {WorkerSteps} */ worker) => worker.missing.reduce((sum, each) => sum + each, 0);
    fill(body, sentence && h("p", { class: "summary" }, sentence),
      table({ rows: workers, columns: [
        { title: "worker", key: (worker) => worker.name, cell: (worker) => named(worker.name) },
        { title: "state", key: (worker) => String(worker.ended), cell: (worker) => worker.ended ? "ended" : h("span", { class: "status live" }, "running") },
        { title: "last step", number: true, key: (worker) => worker.last, cell: (worker) => count(worker.last) },
        { title: "behind", number: true, key: (worker) => newest - worker.last, cell: (worker) => newest > worker.last ? bad(counted(newest - worker.last, "step")) : "0" },
        { title: "missing steps", hint: "Steps that another worker has: lost, or not written yet", number: true, key: missing,
          cell: (worker) => missing(worker) ? bad(`${count(missing(worker))}, from ${count(starts[worker.missing.findIndex((each) => each > 0)])} on`) : "0" },
        { title: "last saved", key: (worker) => worker.savedAt, cell: (worker) => date(worker.savedAt) },
      ] }),
      damaged.length ? h("h3", {}, "Damaged") : note("No file of the run is known to be damaged."),
      ...damaged.map((text) => h("p", { class: "error" }, text)));
  }

  return { show };
}
