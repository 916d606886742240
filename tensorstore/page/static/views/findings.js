/** Findings: what rules found, each linked to its place. */

import { loadFindings, loadRules, runRules } from "../api.js";
import { chosenRun } from "../choice.js";
import { fill, h, table } from "../dom.js";
import { count, number, printable } from "../format.js";
import { firstFindings } from "../findings.js";
import { go, link, state } from "../state.js";

/** @type {import("../app.js").ViewMaker} */
export function findings(root, page) {
  const body = h("div", {});
  const tools = h("div", { class: "tools" });
  root.append(body, tools);

  /** @param {import("../state.js").State} now */
  async function show(now) {
    const run = chosenRun(page.info, now);
    const found = await loadFindings(run.name);
    const firsts = firstFindings(found);
    fill(body, firsts.length ? h("p", { class: "summary" }, `The first is at step ${count(firsts[0].finding.step)}: ${printable(firsts[0].finding.sentence)}`) : h("p", { class: "message" }, "No rule has found anything in this run", run.ended ? ": run some below, or at the shell by " : " so far; watch it by ", h("code", {}, `tensortrial watch ${printable(run.path)} --rule ExplodingTensor`)),
      firsts.length ? table({
        rows: firsts, sort: now.sort ?? "step", onsort: (sort) => go({ sort }, { replace: true }),
        attributes: ({ finding }) => ({ class: now.finding === `${finding.rule} ${finding.step}` && "chosen" }),
        columns: [
          { title: "step", number: true, key: ({ finding }) => finding.step, cell: ({ finding }) => count(finding.step) },
          { title: "rule", key: ({ finding }) => finding.rule, cell: ({ finding }) => printable(finding.rule) },
          { title: "tensor", key: ({ finding }) => finding.tensor, cell: ({ finding }) => finding.tensor
            ? h("a", { class: "name", href: link({ view: "tensor", name: finding.tensor, step: finding.step, mode: finding.mode, from: null, to: null }) }, printable(finding.tensor)) : "" },
          { title: "what was found", cell: ({ finding }) => h("span", { class: finding.failed && "warn" }, printable(finding.sentence)) },
          { title: "times", hint: "How often the rule found it in this tensor; the row is the first", number: true, key: ({ times }) => times, cell: ({ times, last }) => times > 1 ? `${count(times)}, until ${count(last)}` : "1" },
          { title: "observed", number: true, key: ({ finding }) => finding.observed, cell: ({ finding }) => number(finding.observed) },
          { title: "threshold", number: true, key: ({ finding }) => finding.threshold, cell: ({ finding }) => number(finding.threshold) },
          { title: "", cell: ({ finding }) => h("a", { href: around(run, finding) }, "in the overview") },
        ],
      }) : "");
    if (page.info.frozen || tools.childElementCount) return;
    await drawRules(run);
  }

  /** @param {import("../../answers").Run} run */
  async function drawRules(run) {
    const rules = await loadRules();
    if (!rules.length) return;
    const answer = h("span", { role: "status" });
    const boxes = rules.map((rule) => h("input", { type: "checkbox", value: rule.name, checked: ["ExplodingTensor", "VanishingGradient", "LossNotDecreasing"].includes(rule.name) }));
    const button = h("button", { disabled: !run.ended, onclick: async () => {
      const chosen = boxes.filter((box) => box.checked).map((box) => box.value);
      button.disabled = true;
      fill(answer, "Evaluating every step …");
      try {
        const result = await runRules(chosenRun(page.info, state()).name, chosen);
        fill(answer, printable(result));
      } catch (error) {
        fill(answer, h("span", { class: "bad" }, printable(String(error))));
      }
      button.disabled = false;
      await show(state());
    } }, "Run these rules");
    fill(tools, h("h3", {}, "Rules"), button, !run.ended && h("span", { class: "quiet" }, "The run has not ended: use tensortrial watch."), answer,
      h("div", { class: "panels" }, ...rules.map((rule, i) => h("label", { class: "field check", title: printable(rule.about) }, boxes[i], h("span", {}, h("b", {}, rule.name), " ", printable(rule.about.split("\n")[0]))))));
  }

  return { show };
}

/**
 * Return the link to a finding in the overview, with as many steps before as after.
 * @param {import("../../answers").Run} run
 * @param {import("../../answers").Finding} finding
 */
function around(run, finding) {
  const mode = run.modes.find((each) => each.mode === finding.mode) ?? run.modes[0];
  const half = mode ? Math.max(10, Math.round((mode.last - mode.first) / 12)) : 10;
  return link({ view: null, mode: finding.mode, from: mode && finding.step - half > mode.first ? finding.step - half : null,
    to: mode && finding.step + half < mode.last ? finding.step + half : null, rows: null, fold: null, q: null, collection: null });
}
