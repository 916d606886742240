/** Findings: what went wrong, and what rules found. */

import { load } from "../api.js";
import { chosenRun, tensorLink } from "../choice.js";
import { around, drawDiagnosis, inFull } from "../diagnosis.js";
import { fill, h, message, table } from "../dom.js";
import { count } from "../format.js";

/** @type {ViewMaker} */
export function findings(root, page) {
  const body = h("div");
  const diagnosis = h("div", { class: "diagnosis" });
  root.append(diagnosis, body);

  /** @param {State} now */
  async function show(now) {
    const run = chosenRun(page.info, now);
    const firsts = await load("findings", run.name);
    drawDiagnosis(diagnosis, page, run, inFull);
    if (!firsts.length) return fill(body, message("No rule has written a finding into this run. To watch it: ", h("code", {}, `tensortrial watch ${run.path} --rule ExplodingTensor`)));
    fill(body, h("p", { class: "summary" }, `Rules that watched it: ${firsts[0].step === null ? "" : `the first finding is at step ${count(firsts[0].step)}: `}${firsts[0].sentence}`), table({
      rows: firsts, sort: "step",
      attributes: (row) => ({ class: now.finding === `${row.rule} ${row.step}` && "chosen" }),
      columns: [
        { title: "step", number: true, key: (row) => row.step, cell: (row) => row.step === null ? "" : h("a", { href: around(run, row), title: "In the overview" }, count(row.step)) },
        { title: "rule", key: (row) => row.rule },
        { title: "tensor", key: (row) => row.tensor, cell: (row) => row.tensor && tensorLink(row.tensor, { step: row.step, mode: row.mode }) },
        { title: "what was found", cell: (row) => h("span", { class: row.failed && "warn" }, row.sentence) },
        { title: "times", hint: "How often the rule found it in this tensor; the row is the first", number: true, key: (row) => row.times, cell: ({ times, last }) => times > 1 ? `${count(times)}, until ${count(last)}` : "1" },
        { title: "observed", number: true, key: (row) => row.observed },
        { title: "threshold", number: true, key: (row) => row.threshold },
      ],
    }));
  }

  return { show };
}
