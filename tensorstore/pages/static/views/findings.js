/** Findings: what went wrong, and what rules found, each linked to its place. */

import { loadFindings } from "../api.js";
import { chosenRun, tensorLink } from "../choice.js";
import { around, drawDiagnosis, inFull } from "../diagnosis.js";
import { fill, h, message, table } from "../dom.js";
import { firstFindings } from "../findings.js";
import { count, number } from "../format.js";
import { REPLACE, go } from "../state.js";

/** @type {ViewMaker} */
export function findings(root, page) {
  const body = h("div", {});
  const diagnosis = h("div", { class: "diagnosis" });
  root.append(diagnosis, body);

  /** @param {State} now */
  async function show(now) {
    const run = chosenRun(page.info, now);
    const firsts = firstFindings(await loadFindings(run.name));
    void drawDiagnosis(diagnosis, page, run, inFull);
    if (!firsts.length) {
      fill(body, message("No rule has written a finding into this run. One watches it by ", h("code", {}, `tensortrial watch ${run.path} --rule ExplodingTensor`)));
      return;
    }
    fill(body, h("p", { class: "summary" }, `Rules that watched it: the first finding is at step ${count(firsts[0].finding.step)}: ${firsts[0].finding.sentence}`), table({
      rows: firsts, sort: now.sort ?? "step", onsort: (sort) => go({ sort }, REPLACE),
      attributes: ({ finding }) => ({ class: now.finding === `${finding.rule} ${finding.step}` && "chosen" }),
      columns: [
        { title: "step", number: true, key: ({ finding }) => finding.step, cell: ({ finding }) => h("a", { href: around(run, finding), title: "In the overview" }, count(finding.step)) },
        { title: "rule", key: ({ finding }) => finding.rule, cell: ({ finding }) => finding.rule },
        { title: "tensor", key: ({ finding }) => finding.tensor, cell: ({ finding }) => finding.tensor && tensorLink(finding.tensor, { step: finding.step, mode: finding.mode }) },
        { title: "what was found", cell: ({ finding }) => h("span", { class: finding.failed && "warn" }, finding.sentence) },
        { title: "times", hint: "How often the rule found it in this tensor; the row is the first", number: true, key: ({ times }) => times, cell: ({ times, last }) => times > 1 ? `${count(times)}, until ${count(last)}` : "1" },
        { title: "observed", number: true, key: ({ finding }) => finding.observed, cell: ({ finding }) => number(finding.observed) },
        { title: "threshold", number: true, key: ({ finding }) => finding.threshold, cell: ({ finding }) => number(finding.threshold) },
      ],
    }));
  }

  return { show };
}
